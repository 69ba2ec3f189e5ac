// Tests of sweeps with the real shells: no value runs as code, whatever the command is.
#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <random>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "batch/sweep.h"

namespace berth::batch {
namespace {

using Texts = std::vector<std::string>;

constexpr std::array<const char*, 2> kShells{"/bin/sh", "/bin/bash"};

// Each creates the file "ran" if a part of it runs as code.
const Texts& hostile_values() {
  static const Texts values{"$(:>ran)",     "`:>ran`",   "';:>ran;'",   "\";:>ran;\"",
                            ";:>ran;",      "\n:>ran\n", "'$(:>ran)",   "\"$(:>ran)\"",
                            "a[$(:>ran)]",  "}$(:>ran)", ")\n:>ran\n(", "\\';:>ran;\\'",
                            "\nE\n:>ran\n", "&:>ran;#",  "|:>ran",      "\x81\x88';:>ran;'"};
  return values;
}

class SweepInShells : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "berth-sweep-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }

  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Runs a command in a folder of its own; its output.
  std::string run(const char* shell, const std::string& command) {
    const auto output = folder_ / "output";
    ::posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                       0600);
    ::posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    ::posix_spawn_file_actions_addchdir_np(&actions, folder_.c_str());
    std::string text = command;
    std::string name = shell;
    std::string option = "-c";
    std::array<char*, 4> words{name.data(), option.data(), text.data(), nullptr};
    std::array<char*, 1> environment{nullptr};
    pid_t pid = 0;
    EXPECT_EQ(::posix_spawn(&pid, shell, &actions, nullptr, words.data(), environment.data()), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::waitpid(pid, nullptr, 0);
    std::ifstream file(output, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // Runs the line in each shell. Whether a part of a value has run as code.
  bool is_harmful(const std::string& command) {
    for (const char* shell : kShells) {
      run(shell, command);
      if (has_run_value()) return true;
    }
    return false;
  }

  bool has_run_value() { return std::filesystem::remove(folder_ / "ran"); }

 private:
  std::filesystem::path folder_;
};

// Where berth quotes a value, it is one argument, or the stated part of one.
TEST_F(SweepInShells, a_value_is_an_argument) {
  const std::vector<std::pair<std::string, std::string>> contexts{
      {"show {}", ""},
      {"show x{}", "x"},
      {"show --lr={}", "--lr="},
      {"show 'a b'{}", "a b"},
      {"show \"a 'b\"{}", "a 'b"},
      {"show \\'{}", "'"},
      {"show \\ #{}", " #"},
      {"show a#{}", "a#"},
      {"x=1; show $x{}", "1"},
      {"x=1; show ${x}{}", "1"},
      {"show ${x#y}{}", ""},
      {"# it's \\\nshow {}", ""},
      {"show \\\n  {}", ""},
      {"show {} # it's", ""},
      {"show {}>>output", ""},
      {"show ~{}", "~"},
      {"(show {})", ""},
      {"printf %s \"$x\" $(true); show {}", ""},
      {"true && show {} || true", ""},
  };
  Texts values = hostile_values();
  for (const char* plain : {"1", "abc", "root", "a b", "a,b", "", "it's", "\\", "~"})
    values.emplace_back(plain);
  for (const auto& [command, prefix] : contexts) {
    std::string script = "show() { printf '[%s]' \"$@\"; }\n";
    std::string expected;
    for (const std::string& value : values) {
      const auto lines = make_list_lines({command, ":::", value});
      ASSERT_TRUE(lines) << lines.error().message;
      script += lines->front().command + "\n";
      expected += fmt::format("[{}{}]", prefix, value);
    }
    for (const char* shell : kShells) {
      EXPECT_EQ(run(shell, script), expected) << shell << ": " << command;
      EXPECT_FALSE(has_run_value()) << shell << ": " << command;
    }
  }
}

// Found by review and by the test below: each of these once ran a value, or nearly did.
TEST_F(SweepInShells, no_value_runs_as_code) {
  for (const char* command : {
           "echo \"${X:-\"run-{}\"}\"",
           "echo \"${X:-'{}'}\"",
           "echo ${X:-\"a'\"{}\"'\"}",
           "echo ${X:- # '}\n{} ' }",
           "# x \\\necho '{}'",
           "# it's \\\necho {} '",
           "echo \\ # '\n{} '",
           "echo a\\\n# '\n{} '",
           "echo $\\\n'\\''{}'",
           "echo \"$\\\n(echo \"{}\")\"",
           "echo $(true # ' )\n{} '",
           "a[ # '\n {} ' ]=1",
           "echo $'\\'' {}'",
           "cat <<E\n{}\nE",
           "cat <\\\n<E\n{}\nE",
           "echo $((x{}))",
           "echo $[x{}]",
           "echo \"$[x{}]\"",
           "echo `echo {}`",
           "echo \"`echo \"{}\"`\"",
           "[[ x =~ (# ') ]]\n{} '",
       }) {
    for (const std::string& value : hostile_values()) {
      const auto lines = make_list_lines({command, ":::", value});
      if (lines) {
        EXPECT_FALSE(is_harmful(lines->front().command)) << lines->front().command;
      }
    }
  }
}

// Makes random commands with nested quotes, expansions and comments, most of which a shell accepts.
class RandomCommand {
 public:
  explicit RandomCommand(unsigned seed) : random_(seed) {}

  std::string make() {
    std::string command = make_part(4) + "{}" + make_part(2);
    if (below(2) == 0) command = "echo " + command;
    for (std::size_t changes = below(3); changes > 0; --changes) change_letter(command);
    return command;
  }

  std::size_t below(std::size_t limit) { return random_() % limit; }

 private:
  std::string make_part(unsigned depth) {
    static const std::vector<const char*> words{"x",   " ",   "{}",   "{}", " {} ", "\n",   ";",
                                                "=",   " # ", "\\\n", "$x", "${x}", "'",    "\"",
                                                "\\ ", "\\'", "\\\"", "#",  "|",    "echo "};
    static const std::vector<std::pair<const char*, const char*>> pairs{
        {"'", "'"},
        {"\"", "\""},
        {"\"", "\""},
        {"${X:-", "}"},
        {"\"${X:-", "}\""},
        {"$(", ")"},
        {"$(echo ", ")"},
        {"\"$(echo ", ")\""},
        {"`", "`"},
        {"`echo ", "`"},
        {"# ", "\n"},
        {"# ", "\\\n"},
        {"<<E\n", "\nE\n"},
        {"$((", "))"},
        {"$[", "]"},
        {"$'", "'"},
        {"$\"", "\""},
        {"[[ x =~ ", " ]]"},
        {"(", ")"},
        {"a[", "]=1"},
        {"if :; then ", "; fi"},
        {"case x in x) ", ";; esac"},
        {"${x#", "}"},
        {"<(echo ", ")"},
        {"{ ", "; }"},
        {"\\", ""},
        {" ", " "},
        {"<<<", " "}};
    if (depth == 0) return words[below(words.size())];
    std::string part;
    for (std::size_t count = below(3) + 1; count > 0; --count) {
      if (below(2) == 0) {
        part += words[below(words.size())];
      } else {
        const auto& [open, close] = pairs[below(pairs.size())];
        part += open + make_part(depth - 1) + close;
      }
    }
    return part;
  }

  void change_letter(std::string& command) {
    const std::size_t position = below(command.size());
    if (below(2) == 0) {
      command.erase(position, 1);
    } else {
      command.insert(position, 1, "'\"`\\\n #$(){}"[below(12)]);
    }
  }

  std::mt19937 random_;
};

// BERTH_TEST_SWEEPS sets how many commands, and another seed.
TEST_F(SweepInShells, no_value_runs_as_code_in_random_commands) {
  const char* given = std::getenv("BERTH_TEST_SWEEPS");
  const unsigned count =
      given == nullptr ? 300 : static_cast<unsigned>(std::strtoul(given, nullptr, 10));
  RandomCommand random(count);
  for (unsigned i = 0; i < count; ++i) {
    const std::string& value = hostile_values()[random.below(hostile_values().size())];
    const auto lines = make_list_lines({random.make(), ":::", value});
    if (lines) {
      ASSERT_FALSE(is_harmful(lines->front().command)) << lines->front().command;
    }
  }
}

}  // namespace
}  // namespace berth::batch
