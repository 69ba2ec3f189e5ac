// Tests of inserting values into commands.
#include "batch/sweep.h"

#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "batch/command_source.h"

namespace berth::batch {
namespace {

using Texts = std::vector<std::string>;

Texts commands(const Result<std::vector<BatchLine>>& lines) {
  if (!lines) return {"error: " + lines.error().message};
  Texts all;
  for (const BatchLine& line : *lines) all.push_back(line.command);
  return all;
}

Texts from_lists(const Texts& words) {
  return commands(make_list_lines(words));
}

Texts from_table(const std::string& command, std::string_view csv) {
  return commands(make_table_lines({command}, parse_csv(csv, "runs.csv").value(), "runs.csv"));
}

void expect_error(const Texts& commands, const char* words) {
  ASSERT_EQ(commands.size(), 1U);
  EXPECT_TRUE(commands[0].starts_with("error: batch: ")) << commands[0];
  EXPECT_NE(commands[0].find(words), std::string::npos) << commands[0];
}

TEST(ListLines, have_all_combinations) {
  EXPECT_EQ(
      from_lists({"train --lr {} --seed {}", ":::", "1e-3", "1e-4", ":::", "1", "2", "3"}),
      (Texts{"train --lr 1e-3 --seed 1", "train --lr 1e-3 --seed 2", "train --lr 1e-3 --seed 3",
             "train --lr 1e-4 --seed 1", "train --lr 1e-4 --seed 2", "train --lr 1e-4 --seed 3"}));
  const auto lines = make_list_lines({"a {}", ":::", "1", "2"}).value();
  EXPECT_EQ(lines[1].number, 2U);
  EXPECT_EQ(lines[1].line, 0U);
  EXPECT_NE(lines[0].key, lines[1].key);
}

TEST(ListLines, linked_lists_advance_together) {
  EXPECT_EQ(from_lists({"{1} {2} {3}", ":::", "a", "b", ":::+", "x", "y", ":::", "1", "2"}),
            (Texts{"a x 1", "a x 2", "b y 1", "b y 2"}));
}

TEST(ListLines, placeholders_are_those_of_parallel) {
  EXPECT_EQ(from_lists({"a {} {}", ":::", "1"}), (Texts{"a 1 1"}));
  EXPECT_EQ(from_lists({"a {}", ":::", "1", ":::", "2"}), (Texts{"a 1 2"}));
  EXPECT_EQ(from_lists({"a {2} {1} {2}", ":::", "1", ":::", "2"}), (Texts{"a 2 1 2"}));
  EXPECT_EQ(from_lists({"a >log{#}", ":::", "x", "y"}), (Texts{"a >log1 x", "a >log2 y"}));
  EXPECT_EQ(from_lists({"a", "--b", ":::", "1", ":::", "2"}), (Texts{"a --b 1 2"}));
}

TEST(ListLines, other_braces_are_left_to_the_shell) {
  const std::string text = "a ${x} ${1} {a,b} {1..3} \\{} '{ print }' '{\"a\": 1}' {}";
  EXPECT_EQ(from_lists({text, ":::", "v"}),
            (Texts{"a ${x} ${1} {a,b} {1..3} \\{} '{ print }' '{\"a\": 1}' v"}));
}

TEST(ListLines, values_are_quoted) {
  EXPECT_EQ(from_lists({"a {}", ":::", "b c", "d;e", "it's", "", "$(x)", "~", "k=v"}),
            (Texts{"a 'b c'", "a 'd;e'", "a 'it'\\''s'", "a ''", "a '$(x)'", "a '~'", "a k=v"}));
}

// There quotes would not protect the value.
TEST(ListLines, values_inside_quotes_must_be_plain) {
  for (const char* text : {"a '{}'", "a \"{}\"", "a \"$(b \"{}\")\"", "a `b {}`", "a $(($x * {}))",
                           "a # {}", "a <<E\n{}\nE", "a \"`b`\" {}", "a $'\\' {}'"}) {
    expect_error(from_lists({text, ":::", "b c"}), "'b c'");
    EXPECT_EQ(from_lists({text, ":::", "5"}).front().find("error"), std::string::npos) << text;
  }
  for (const char* text : {"a 'b'{}", "a \"b\" {}", "a \\\" {}", "a $(b \"c\" {})", "a# {}",
                           "a # b\nc {}", "a ${x#y} {}"}) {
    EXPECT_TRUE(from_lists({text, ":::", "b c"}).front().ends_with("'b c'") ||
                from_lists({text, ":::", "b c"}).front().ends_with("'b c')"))
        << text;
  }
}

// The remedy fits the place.
TEST(ListLines, a_refused_value_has_a_remedy) {
  expect_error(from_lists({"a '{}'", ":::", "b c"}), "inside quotes; remove the quotes around {}");
  expect_error(from_lists({"a # {}", ":::", "b c"}), "in a comment; remove {} from the comment");
  expect_error(from_lists({"a $((x + {}))", ":::", "b c"}), "behind '$((', where berth cannot");
  expect_error(from_lists({"a <<E\n{}\nE", ":::", "b c"}), "behind '<<', where");
  expect_error(from_lists({"a \"${x:-{}}\"", ":::", "b c"}), "behind '${', where");
  expect_error(from_lists({"a \"$x{}\"", ":::", "b"}), "write ${NAME}{} instead of $NAME{}");
}

// As "$x5" and "5>file" the shell would read something else than the value.
TEST(ListLines, plain_values_are_quoted_where_the_shell_would_join_them) {
  EXPECT_EQ(from_lists({"a $x{} ~{} {}>f {1}{1}", ":::", "5"}), (Texts{"a $x'5' ~'5' '5'>f 55"}));
}

TEST(ListLines, mistakes_are_named) {
  expect_error(from_lists({"a {3}", ":::", "1", ":::", "2"}),
               "no list {3}; the lists are {1} to {2}");
  expect_error(from_lists({"a {0}", ":::", "1"}), "no list {0}; the only list is {1}");
  expect_error(from_lists({"a {99999999999999999999999}", ":::", "1"}), "no list {9");
  expect_error(from_lists({"a {} {} {}", ":::", "1", ":::", "2"}), "3 {} for 2 lists");
  expect_error(from_lists({"a {lr}", ":::", "1"}), "{lr}");
  expect_error(from_lists({"a {.}", ":::", "1"}), "{.}");
  expect_error(from_lists({"a {}", ":::"}), "list 1");
  expect_error(from_lists({"a {}", ":::", ":::", "1"}), "list 1");
  expect_error(from_lists({"a {}", "::::", "file"}), "::::");
  expect_error(from_lists({"a", ":::+", "1"}), ":::");
  expect_error(from_lists({"a", ":::", "1", "2", ":::+", "1"}), "list 1 has 2, list 2 has 1");
  expect_error(from_lists({":::", "1"}), "no command");
  expect_error(from_lists({"a {}", ":::", std::string("\0", 1)}), "NUL");
  Texts many{"a"};
  for (int list = 0; list < 8; ++list) {
    many.emplace_back(":::");
    many.insert(many.end(), 10, "1");
  }
  expect_error(from_lists(many), "1000000");
}

TEST(TableLines, columns_have_names_and_numbers) {
  EXPECT_EQ(from_table("train --lr {lr} --seed {seed} {2} {#}", "lr,seed\n1e-3,1\nb c,2\n"),
            (Texts{"train --lr 1e-3 --seed 1 1 1", "train --lr 'b c' --seed 2 2 2"}));
  EXPECT_EQ(from_table("train {}", "lr,seed\n1e-3,1\n"), (Texts{"train 1e-3 1"}));
  EXPECT_EQ(from_table("train ${lr} {lr}", "lr\n1\n"), (Texts{"train ${lr} 1"}));
  const auto lines =
      make_table_lines({"a {x}"}, parse_csv("x\n\n1\n2\n", "-").value(), "-").value();
  EXPECT_EQ(lines[0].line, 3U);
  EXPECT_EQ(from_table("a {x}", "x\n"), Texts{});
}

TEST(TableLines, mistakes_are_named) {
  expect_error(from_table("a {ls}", "lr,seed\n1,2\n"), "no column 'ls'; its columns are lr, seed");
  expect_error(from_table("a {3}", "lr,seed\n1,2\n"), "no column {3}; the columns are {1} to {2}");
  expect_error(from_table("a", "lr,seed\n1,2\n"), "uses no column");
  expect_error(from_table("a '{lr}'", "lr\n1\nb c\n"), "line 3 of 'runs.csv': the value 'b c'");
  expect_error(from_table("a {lr}", std::string_view("lr\n1\n\0\n", 7)), "line 3 of 'runs.csv'");
}

// Each line of the script would be run alone.
TEST(ReadCommands, the_script_of_a_shell_is_refused) {
  const std::string file = fmt::format("{}berth-train-{}.sh", ::testing::TempDir(), ::getpid());
  const auto read = [&](std::string_view text) {
    std::ofstream(file) << text;
    return commands(read_commands({{file}, "", {}}));
  };
  for (const char* text : {"a\nfor i in 1 2; do\n  a $i\ndone\n", "a\nif true; then\n  b\nfi\n",
                           "#\nif true\nthen\nb\nfi\n", "a\ncase $x in\na) b;;\nesac\n",
                           "a\n{\nb\n}\n", "a\nrun() {\nb\n}\n", "a\nfunction run {\nb\n}\n",
                           "a\nwhile read x ; do\na\ndone <b\n", "a\ndone; b\n"}) {
    expect_error(read(text), "berth run -- sh ");
  }
  expect_error(read("#!/bin/bash\nfor i in 1; do\na\ndone\n"), "line 2 of");
  expect_error(read("#!/bin/bash\nfor i in 1; do\na\ndone\n"), "berth run -- bash ");
  for (const char* text :
       {"for i in 1 2; do a $i; done", "if a; then b; fi", "{ a; b; }", "./done.sh",
        "case $x in a) b;; esac", "f() { a; }; f", "done.sh", "echo do", "(a; b)"}) {
    EXPECT_EQ(read(text), Texts{text});
  }
  std::filesystem::remove(file);
}

TEST(ReadCommands, contradictions_are_named) {
  expect_error(commands(read_commands({})), "no commands");
  expect_error(commands(read_commands({{"jobs.txt"}, "", {"true"}})), "not both");
  expect_error(commands(read_commands({{"python", "a b.py"}, "", {}})),
               "berth run -- python 'a b.py'");
  expect_error(commands(read_commands({{"a {}", ":::", "1"}, "", {}})), "--");
  expect_error(commands(read_commands({{}, "runs.csv", {}})), "--csv");
  expect_error(commands(read_commands({{"a {lr}"}, "runs.csv", {}})), "--csv");
  expect_error(commands(read_commands({{}, "runs.csv", {"a {}", ":::", "1"}})), ":::");
}

}  // namespace
}  // namespace berth::batch
