// Unit tests of job_type.h: which commands have the same type, and that types contain no secrets.
#include "profile/job_type.h"

#include <cstdio>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

namespace berth {
namespace {

std::string type_of(const std::vector<std::string>& command) {
  return derive_job_type(command, 1, false).name;
}

std::string type_of_line(const std::string& line) {
  return derive_line_job_type(line, 1, false).name;
}

class JobTypeTest : public ::testing::Test {
 protected:
  JobTypeTest()
      : script_(::testing::TempDir() + "berth-job-type-" + std::to_string(::getpid()) + ".py") {
    std::ofstream(script_) << "pass\n";
  }
  ~JobTypeTest() override { ::unlink(script_.c_str()); }
  std::string script_;
};

TEST_F(JobTypeTest, script_path_without_arguments) {
  const std::string expected = "python " + script_;
  EXPECT_EQ(type_of({"python3", script_, "--lr", "0.1"}), expected);
  EXPECT_EQ(type_of({"/usr/bin/python3.11", "-u", script_, "--lr", "0.2"}), expected);
  EXPECT_EQ(type_of({"env", "-u", "B", "A=1", "nice", "-n", "10", "python", script_}), expected);
  EXPECT_EQ(type_of({"timeout", "-k", "5", "2h", "taskset", "-c", "0-3", "python", script_}),
            expected);
  EXPECT_EQ(type_of({"conda", "run", "-n", "torch", "python", script_}), expected);
  EXPECT_EQ(type_of({"torchrun", "--standalone", script_}), "torchrun " + script_);
}

TEST_F(JobTypeTest, shell_lines) {
  const std::string expected = "python " + script_;
  EXPECT_EQ(type_of_line("python " + script_ + " --lr 0.1"), expected);
  EXPECT_EQ(type_of_line("cd /tmp && SEED=1 python '" + script_ + "' --lr 0.1 > log 2>&1"),
            expected);
  EXPECT_EQ(type_of({"sh", "-c", "export A=1; python " + script_}), expected);
  EXPECT_EQ(type_of({"bash", "-lc", "time python " + script_ + " | tee log"}), expected);
  EXPECT_EQ(type_of({"bash", "--norc", "-c", "python " + script_ + " --lr 0.1"}), expected);
  EXPECT_EQ(type_of_line("conda activate torch; python " + script_), expected);
  EXPECT_EQ(type_of_line("conda run -n torch python " + script_), expected);
  EXPECT_EQ(type_of_line("for seed in 1 2; do python " + script_ + " $seed; done"), expected);
  EXPECT_EQ(type_of_line("if [ -e x ]; then python " + script_ + "; fi"), expected);
  EXPECT_EQ(type_of_line("true # not this; ls 2\npython " + script_), expected);
}

// A descriptor, the target of a redirection, or the value of a flag is not a program.
TEST_F(JobTypeTest, is_not_a_number_or_a_file_of_output) {
  const std::string expected = "python " + script_;
  EXPECT_EQ(type_of_line("echo x >&2; exit 3"), "echo x; exit 3");
  for (const char* before :
       {"echo x >&2;", "true 2>&1;", "2>errors", ">>log 2>&1", "&>log", "<input", "exec 2>&- &&",
        "echo $((1 + 2));", "x=$((1 + 2));", "timeout --signal KILL 2", "timeout -s 9 2",
        "nice --adjustment 5", "timeout --kill-after=5 2h", "echo begin 2>log >&2;"}) {
    EXPECT_EQ(type_of_line(std::string(before) + " python " + script_), expected) << before;
  }
}

// The arguments of a launcher determine what runs, so two such commands have different types.
TEST_F(JobTypeTest, launchers_keep_all_their_words) {
  EXPECT_EQ(type_of({"docker", "run", "image", "train"}), "docker run image train");
  EXPECT_EQ(type_of_line("cd x && make train"), "make train");
}

// All users can read a type, and the history keeps it forever.
TEST_F(JobTypeTest, contains_no_secret) {
  const std::string expected = "docker run image train";
  EXPECT_EQ(type_of({"docker", "run", "-e", "TOKEN=hunter2", "image", "train"}), expected);
  EXPECT_EQ(type_of({"docker", "run", "-eTOKEN=hunter2", "image", "train"}), expected);
  EXPECT_EQ(type_of({"docker", "run", "--env", "TOKEN=hunter2", "image", "train"}), expected);
  EXPECT_EQ(type_of({"docker", "run", "--env=TOKEN=hunter2", "image", "train"}), expected);
  EXPECT_EQ(type_of({"docker", "run", "--password", "hunter2", "image", "train"}), expected);
  EXPECT_EQ(type_of({"docker", "run", "--api-key=hunter2", "image", "train"}), expected);
  EXPECT_EQ(type_of({"make", "train", "TOKEN=hunter2"}), "make train");
  EXPECT_EQ(type_of({"make", "train", "https://me:hunter2@host/x@y"}),
            "make train https://host/x@y");
  EXPECT_EQ(type_of({"make", "--from=redis://:hunter2@host/0"}), "make --from=redis://host/0");
  EXPECT_EQ(type_of_line("export TOKEN=hunter2; echo TOKEN=hunter2"), "export; echo");
  EXPECT_EQ(type_of({"TOKEN=hunter2"}), "TOKEN");
  for (const char* text :
       {"token='hunter2'; f(token)", "f(token='hunter2')", "get('https://me:hunter2@host')"}) {
    const std::string type = type_of({"python", "-c", text});
    EXPECT_TRUE(type.starts_with("python -c #")) << type;
    EXPECT_EQ(type.find("hunter2"), std::string::npos) << type;
  }
}

// A word with blanks is a program's text, a header or a message: it may contain a secret.
TEST_F(JobTypeTest, hashes_free_text_that_may_hold_secrets) {
  const std::vector<std::vector<std::string>> commands{
      {"docker", "run", "image", "sh", "-c", "export TOKEN=hunter2; python t.py"},
      {"docker", "run", "image", "bash", "-c", "python t.py --token hunter2"},
      {"docker", "run", "image", "bash", "-c", "python\tt.py\thunter2"},
      {"docker", "run", "image", "bash", "-c", "login<<<hunter2"},
      {"docker", "run", "image", "bash", "-c", "(login;hunter2)"},
      {"docker", "run", "image", "get", "--header", "Authorization: Bearer hunter2"},
      {"docker", "run", "image", "get", "--header=Authorization: Bearer hunter2"},
      {"docker", "run", "image", "get", "-H", "X-Api-Key:hunter2"},
      {"docker", "run", "image", "get", "-HX-Api-Key: hunter2"},
      {"docker", "run", "image", "get", "https://host/x?token=hunter2"},
      {"docker", "run", "image", "get", "--option=token=hunter2"},
      {"docker", "login", "-p", "hunter2"},
      {"docker", "run", "image", "mysql", "-phunter2"},
      {"docker", "run", "image", "get", "-u", "me:hunter2"},
      {"docker", "run", "image", "get", "--user=me:hunter2"},
      {"make", "train", "ARGS=--token hunter2"},
      {"make", "-c export TOKEN=hunter2"},
      {"sh", "-c", "echo 'Authorization: Bearer hunter2'"},
      {"sh", "-c", "docker run image sh -c 'export TOKEN=hunter2; python t.py'"},
      {"sh", "-c", "docker run image sh -c \"sh -c 'export TOKEN=hunter2'\""},
      {"python", "-c", "run(['get','--token','hunter2'])"},
      {"python", "-c", "run('get --header hunter2')"},
      {"python", "-c", "post({'Authorization':'hunter2'})"},
  };
  for (const auto& command : commands) {
    const std::string type = type_of(command);
    EXPECT_EQ(type.find("hunter2"), std::string::npos) << type;
    EXPECT_EQ(derive_job_type(command, 1, true).name.find("hunter2"), std::string::npos);
  }
}

// A hash replaces such a text, so that two programs have two types.
TEST_F(JobTypeTest, distinguishes_texts_by_hash) {
  const auto type = [](const std::string& text) {
    return type_of({"docker", "run", "image", "sh", "-c", text});
  };
  const std::string first = type("python a.py");
  EXPECT_TRUE(first.starts_with("docker run image sh -c #")) << first;
  EXPECT_EQ(type("python a.py"), first);
  EXPECT_NE(type("python b.py"), first);
  // The hash does not include the secret: guessing cannot reveal it, and a new secret does not
  // change the type.
  EXPECT_EQ(type("TOKEN=hunter2 python a.py --password hunter2"), first);
  EXPECT_EQ(type("TOKEN=hunter3 python a.py --password hunter3"), first);
  EXPECT_EQ(type("TOKEN=hunter2"), "docker run image sh -c");
}

TEST_F(JobTypeTest, a_file_is_not_a_password) {
  EXPECT_EQ(type_of({"singularity", "run", "-p", script_}), "singularity run -p " + script_);
  EXPECT_EQ(type_of({"singularity", "run", "-p", "hunter2", "train"}), "singularity run -p train");
  EXPECT_EQ(type_of({"docker", "run", "-u", "1000:1000", "image"}),
            "docker run -u 1000:1000 image");
  EXPECT_EQ(type_of({"docker", "run", "-p", "--rm", "image"}), "docker run -p --rm image");
}

// If `ps` hides commands, a type shows only the program's name.
TEST_F(JobTypeTest, hidden_command_shows_only_the_program) {
  const auto hidden = [](const std::vector<std::string>& command) {
    return derive_job_type(command, 1, true).name;
  };
  const std::string type = hidden({"python3", script_, "--lr", "0.1"});
  EXPECT_TRUE(type.starts_with("python #")) << type;
  EXPECT_EQ(type.find(script_), std::string::npos);
  EXPECT_EQ(hidden({"python", script_, "--lr", "0.2"}), type) << "the same job has the same type";
  EXPECT_NE(hidden({"python", "-m", "train"}), type);
  EXPECT_TRUE(hidden({"docker", "run", "image"}).starts_with("docker #"));
  EXPECT_EQ(hidden({"train", "--fast"}), "train");
  EXPECT_EQ(derive_job_type({"python", script_}, 2, true).name, type + " on 2 GPUs");
  EXPECT_EQ(derive_line_job_type("cd x && python " + script_, 1, true).name, type);
  EXPECT_EQ(public_command({"/opt/bin/train", "secret"}, true), "train");
  EXPECT_EQ(public_command({"/opt/bin/train", "secret"}, false), "/opt/bin/train secret");
  EXPECT_EQ(public_command({"/bin/sh", "-c", "cd x && python a.py"}, true), "sh");
  EXPECT_EQ(public_command({"/bin/sh", "-c", "cd x && python a.py"}, false), "cd x && python a.py");
}

// A type must be the same after it was written and read.
TEST_F(JobTypeTest, is_valid_utf8) {
  EXPECT_EQ(type_of({"tr\xe4in"}), "tr\\xe4in");
  const std::string text = std::string(199, 'x') + "ä";  // cut in the middle of a character
  EXPECT_EQ(type_of({"python", "-c", text}), "python -c " + std::string(199, 'x') + "\\xc3");
}

TEST_F(JobTypeTest, without_a_script) {
  EXPECT_EQ(type_of({"python", "-m", "torch.distributed.run", "--nproc", "2"}),
            "python -m torch.distributed.run");
  EXPECT_EQ(type_of({"python", "-c", "print(1)"}), "python -c print(1)");
  EXPECT_EQ(type_of({"train", "--fast"}), "train");
  EXPECT_EQ(type_of_line("cd nowhere"), "cd nowhere");
}

TEST_F(JobTypeTest, gpu_count_is_part_of_the_type) {
  EXPECT_EQ(derive_job_type({"train"}, 2, false).name, "train on 2 GPUs");
  EXPECT_EQ(make_named_job_type("x", 4).name, "x on 4 GPUs");
  EXPECT_EQ(make_named_job_type("x", 1).name, "x");
}

TEST_F(JobTypeTest, accepts_any_text) {
  for (const char* line : {"", " ", "'", "\\", "&&", "; ; ;", "a=b", "$(", "nice", "env -i", "<",
                           "\"'<'", "\\\\\\ <", "-p", "-u", "-", "=", "-="}) {
    derive_line_job_type(line, 1, false);
    derive_job_type({line}, 1, true);
    derive_job_type({"docker", line}, 1, false);
    derive_job_type({"docker", line, line}, 1, false);
  }
}

}  // namespace
}  // namespace berth
