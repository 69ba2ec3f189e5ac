// The interface by which a command declares its flags.
//
// It hides the parser, CLI11, which is a header-only library: each file that includes it takes ten
// seconds to compile, and makes each start of berth slower.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace berth {

class Flags {
 public:
  explicit Flags(CLI::App& parser) : parser_(parser) {}

  // Stores the value of `text`, or returns an error whose message follows the flag's name.
  using ValueParser = std::function<Result<void>(std::string_view text)>;

  // Sets the heading in the help for the flags declared from here on; "" hides them.
  void set_group(std::string heading) { group_ = std::move(heading); }

  void add_flag(const char* name, bool& target, const char* help);
  // A flag with a value, given at most once. A type such as "a|b|c" completes to these words.
  void add_value(const char* names, const char* type, const char* help, ValueParser parse);
  // The same for any text, stored as it is.
  void add_text(const char* names, const char* type, const char* help, std::string& target);
  // The same as add_value(), but may be given any number of times.
  void add_repeated_value(const char* names, const char* type, const char* help, ValueParser parse);
  // A flag whose value is one of the words of `type`, "a|b|c".
  void add_choice(const char* names, const char* type, const char* help, std::string& target);
  // A flag whose value may be left out: `parse` then gets an empty text.
  void add_optional_value(const char* names, const char* type, const char* help, ValueParser parse);
  // Arguments without a flag, any number of them.
  void add_positionals(const char* name, const char* help, std::vector<std::string>& target);
  // An entry in the help that the parser does not handle.
  void add_help_entry(const char* name, const char* type, const char* help);
  // `check` is called when all flags are parsed, to reject combinations that contradict each other.
  void set_check(std::function<Result<void>()> check);
  void set_footer(const char* text);

  CLI::App& parser() { return parser_; }

 private:
  enum class Occurrence : std::uint8_t { once, any_number };
  CLI::Option* add_option(const char* names, const char* type, const char* help, ValueParser parse,
                          Occurrence occurrence = Occurrence::once);

  CLI::App& parser_;
  std::string group_ = "Options";
};

}  // namespace berth
