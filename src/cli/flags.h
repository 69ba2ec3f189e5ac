// The flags and arguments that a command declares; parses them, and writes their help.
//
// Not a library: CLI11, which parses subcommands, types and configuration files too, took a fifth
// of the time of a `berth run`, and more to compile than any other header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace berth {

// A flag ("--count"), or an argument without a flag ("FILE").
struct Option {
  // Stores the value of `text`, or returns an error whose message follows the option's name.
  using ValueParser = std::function<Result<void>(std::string_view text)>;
  enum class Value : std::uint8_t { none, optional, required };

  std::string short_name;  // "-n", or empty
  std::string name;        // "--count" or "FILE"
  std::string type;        // of the value, such as "N"; "a|b|c" are the words that it accepts
  std::string help;        // may have several lines
  std::string group;       // heading in the help; empty: not shown
  ValueParser parse;       // of a flag without a value: called with an empty text
  Value value = Value::required;
  bool repeatable = false;
  bool required = false;
  std::size_t times_given = 0;

  bool is_argument() const { return !name.starts_with('-'); }
  bool is_flag(std::string_view word) const;  // whether `word` is one of its names
  std::vector<std::string> choices() const;   // the words of `type`, if it is "a|b|c"
};

class Flags {
 public:
  using ValueParser = Option::ValueParser;

  Flags();  // declares -h, --help

  // How the command is called ("berth run"), for the help and for errors.
  void set_usage(std::string usage) { usage_ = std::move(usage); }
  // Sets the heading in the help for the flags declared from here on; "" hides them.
  void set_group(std::string heading) { group_ = std::move(heading); }

  void add_flag(const char* names, bool& target, const char* help);
  // A flag with a value, or an argument, given at most once. `names` is such as "-n,--count".
  void add_value(const char* names, const char* type, const char* help, ValueParser parse);
  // The same for any text, stored as it is.
  void add_text(const char* names, const char* type, const char* help, std::string& target);
  // The same as add_value(), but may be given any number of times.
  void add_repeated_value(const char* names, const char* type, const char* help, ValueParser parse);
  // A flag or argument whose value is one of the words of `type`, "a|b|c".
  void add_choice(const char* names, const char* type, const char* help, std::string& target);
  // A flag whose value may be left out: `parse` then gets an empty text.
  void add_optional_value(const char* names, const char* type, const char* help, ValueParser parse);
  // Arguments without a flag, any number of them.
  void add_positionals(const char* name, const char* help, std::vector<std::string>& target);
  // Stores the arguments for which no argument was declared in `target`, so that the command can
  // refuse them with a remedy that depends on them. Without this, the parser refuses them.
  void collect_extra_arguments(std::vector<std::string>& target) { extra_arguments_ = &target; }
  // An entry in the help that the parser does not handle.
  void add_help_entry(const char* name, const char* type, const char* help);
  // Makes the option that was declared last required.
  void require() { options_.back().required = true; }
  // `check` is called when all flags are parsed, to reject combinations that contradict each other.
  void set_check(std::function<Result<void>()> check) { check_ = std::move(check); }
  void set_footer(const char* text) { footer_ = text; }
  // The remedy if an unknown flag follows an argument: it probably belongs to another command.
  void set_foreign_flag_remedy(const char* text) { foreign_flag_remedy_ = text; }
  // The remedy if there is an argument too many, instead of the hint at --help.
  void set_argument_remedy(const char* text) { argument_remedy_ = text; }

  // What a command line asks for.
  enum class Asked : std::uint8_t { run, help };
  // Parses the words behind the name of the command. ErrorKind::usage.
  Result<Asked> parse(std::span<const char* const> words);

  // The flag `name` (without its value), or nullptr.
  const Option* find(std::string_view name) const;
  const std::vector<Option>& options() const { return options_; }

  std::string format_help(std::string_view summary) const;

 private:
  Option& add(const char* names, const char* type, const char* help, ValueParser parse);
  Result<void> store(Option& option, std::string_view text);
  Result<void> parse_argument(std::string_view word);
  Result<std::size_t> parse_flag(std::span<const char* const> words);
  Error unknown_flag_error(std::string_view word, std::string_view name) const;
  std::string suggest_flag(std::string_view name) const;
  std::string format_usage() const;

  std::vector<Option> options_;
  std::string usage_ = "berth";
  std::string group_ = "Options";
  std::function<Result<void>()> check_;
  std::string footer_;
  std::string foreign_flag_remedy_;
  std::string argument_remedy_;
  std::vector<std::string>* extra_arguments_ = nullptr;
};

// A line of help: "  --count N    Number of GPUs", with further lines of `help` below it.
std::string format_help_entry(std::string_view name, std::string_view help);

}  // namespace berth
