// Tests of the parser of flags and arguments, and of its help.
#include "cli/flags.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace berth {
namespace {

// A command with one option of each kind.
struct Example {
  Flags flags;
  bool json = false;
  std::string label;
  std::string by;
  std::string watch = "not given";
  std::string file;
  std::vector<std::string> environment;
  std::vector<std::string> words;

  Example() {
    flags.add_flag("--json", json, "Print JSON");
    flags.add_text("-l,--label", "TEXT", "Text shown next to the job", label);
    flags.add_choice("--by", "user|job", "Table", by);
    flags.add_optional_value("--watch", "[SECONDS]", "Repeat", [this](std::string_view text) {
      watch = text;
      return Result<void>();
    });
    flags.add_repeated_value("--env", "NAME", "Variable\nto pass on",
                             [this](std::string_view text) {
                               environment.emplace_back(text);
                               return Result<void>();
                             });
    flags.add_text("FILE", "", "File to read", file);
    flags.add_positionals("WORD", "More words", words);
  }

  // The message of the error; "" if there is none, "help" if help is asked for.
  std::string parse(const std::vector<const char*>& arguments) {
    const auto asked = flags.parse(arguments);
    if (!asked) return asked.error().message;
    return *asked == Flags::Asked::help ? "help" : "";
  }
};

TEST(Flags, a_value_stands_in_the_same_word_or_in_the_next) {
  for (const std::vector<const char*>& arguments : std::vector<std::vector<const char*>>{
           {"--label", "a b"}, {"--label=a b"}, {"-l", "a b"}, {"-la b"}}) {
    Example example;
    EXPECT_EQ(example.parse(arguments), "");
    EXPECT_EQ(example.label, "a b");
  }
}

TEST(Flags, a_value_may_look_like_a_flag_or_be_empty) {
  Example example;
  EXPECT_EQ(example.parse({"--label", "--json", "--env=", "--env", "A=B=C"}), "");
  EXPECT_EQ(example.label, "--json");
  EXPECT_FALSE(example.json);
  EXPECT_EQ(example.environment, (std::vector<std::string>{"", "A=B=C"}));
}

TEST(Flags, a_value_is_not_split) {
  Example example;
  EXPECT_EQ(example.parse({"--label", "[1,2]", "[3,4]"}), "");
  EXPECT_EQ(example.label, "[1,2]");
  EXPECT_EQ(example.file, "[3,4]");
}

TEST(Flags, an_optional_value_is_not_the_next_flag) {
  Example without;
  EXPECT_EQ(without.parse({"--watch", "--json"}), "");
  EXPECT_EQ(without.watch, "");
  EXPECT_TRUE(without.json);
  Example with;
  EXPECT_EQ(with.parse({"--watch", "5"}), "");
  EXPECT_EQ(with.watch, "5");
}

TEST(Flags, arguments_fill_in_order_and_behind_dashes_all_words_are_arguments) {
  Example example;
  EXPECT_EQ(example.parse({"one", "--json", "two", "-", "--", "--by", "--"}), "");
  EXPECT_EQ(example.file, "one");
  EXPECT_EQ(example.words, (std::vector<std::string>{"two", "-", "--by", "--"}));
  EXPECT_TRUE(example.json);
}

TEST(Flags, errors_name_the_option) {
  EXPECT_EQ(Example().parse({"--labels", "x"}), "unknown option '--labels'; did you mean --label?");
  EXPECT_EQ(Example().parse({"--lab=x"}),
            "unknown option '--lab=x'; 'berth --help' lists the options");
  EXPECT_EQ(Example().parse({"-x"}), "unknown option '-x'; 'berth --help' lists the options");
  EXPECT_EQ(Example().parse({"--label"}), "--label needs a value");
  EXPECT_EQ(Example().parse({"--json=yes"}), "--json takes no value");
  EXPECT_EQ(Example().parse({"--by", "week"}), "--by: 'week' is not one of user and job");
  EXPECT_EQ(Example().parse({"-l", "a", "--label=b"}),
            "--label: given more than once; give it once");
  EXPECT_EQ(Example().parse({"--json", "--json"}), "");
}

TEST(Flags, an_unknown_flag_behind_an_argument_may_belong_to_another_command) {
  Example example;
  example.flags.set_foreign_flag_remedy("write --");
  EXPECT_EQ(example.parse({"--lr", "1"}),
            "unknown option '--lr'; 'berth --help' lists the options");
  EXPECT_EQ(example.parse({"train.py", "--labels"}),
            "unknown option '--labels'; did you mean --label?");
  EXPECT_EQ(example.parse({"train.py", "--lr", "1"}), "unknown option '--lr'; write --");
}

TEST(Flags, an_argument_too_many_or_too_few_is_an_error) {
  Flags flags;
  std::string shell;
  flags.add_choice("SHELL", "bash|zsh", "Shell", shell);
  flags.require();
  const std::vector<const char*> two{"bash", "zsh"};
  EXPECT_EQ(flags.parse(two).error().message, "unexpected argument 'zsh'; see 'berth --help'");
  Flags again;
  again.add_choice("SHELL", "bash|zsh", "Shell", shell);
  again.require();
  EXPECT_EQ(again.parse({}).error().message, "SHELL is required; see 'berth --help'");
}

TEST(Flags, help_is_shown_whatever_follows) {
  EXPECT_EQ(Example().parse({"--json", "--help", "--no-such-flag"}), "help");
  EXPECT_EQ(Example().parse({"-h"}), "help");
}

TEST(Flags, the_check_sees_all_values) {
  Example example;
  example.flags.set_check([&]() -> Result<void> {
    if (example.json && !example.by.empty()) return fail(ErrorKind::usage, "not both");
    return {};
  });
  EXPECT_EQ(example.parse({"--json", "--by", "job"}), "not both");
}

TEST(Flags, help_lists_the_options_by_group) {
  Example example;
  example.flags.set_group("Other");
  bool one = false;
  example.flags.add_flag("--a-flag-with-a-very-long-name", one, "Help");
  example.flags.set_group("");
  example.flags.add_flag("--hidden", one, "Help");
  example.flags.set_footer("The end.");
  example.flags.set_usage("berth it");
  EXPECT_EQ(example.flags.format_help("Does it"),
            "Does it\n"
            "Usage: berth it [OPTIONS] [FILE] [WORD...]\n"
            "\n"
            "Arguments:\n"
            "  FILE                        File to read\n"
            "  WORD ...                    More words\n"
            "\n"
            "Options:\n"
            "  -h,--help                   Show this help\n"
            "  --json                      Print JSON\n"
            "  -l,--label TEXT             Text shown next to the job\n"
            "  --by user|job               Table\n"
            "  --watch [SECONDS]           Repeat\n"
            "  --env NAME                  Variable\n"
            "                              to pass on\n"
            "\n"
            "Other:\n"
            "  --a-flag-with-a-very-long-name\n"
            "                              Help\n"
            "\n"
            "The end.\n");
}

TEST(Flags, extra_arguments_can_be_collected) {
  std::string file;
  std::vector<std::string> more;
  Flags flags;
  flags.add_text("FILE", "", "File", file);
  flags.collect_extra_arguments(more);
  const std::vector<const char*> words{"a", "b", "c"};
  ASSERT_TRUE(flags.parse(words));
  EXPECT_EQ(file, "a");
  EXPECT_EQ(more, (std::vector<std::string>{"b", "c"}));
}

}  // namespace
}  // namespace berth
