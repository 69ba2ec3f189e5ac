// How a command declares its flags.
//
// The parser, CLI11, stands behind it, in one file: it is all headers, and whoever includes it
// takes ten seconds to compile, and some of the time of each start of berth.
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

  // Takes the text of a value, or says what is wrong with it, to be read after the flag's name.
  using ValueParser = std::function<Result<void>(std::string_view text)>;

  // The heading in the help for what is declared from here on; "" hides it there.
  void set_group(std::string heading) { group_ = std::move(heading); }

  void add_flag(const char* name, bool& target, const char* help);
  // With a value, given once at most. A type that reads "a|b|c" completes to these words.
  void add_value(const char* names, const char* type, const char* help, ValueParser parse);
  // May be given again and again.
  void add_repeated_value(const char* names, const char* type, const char* help, ValueParser parse);
  // One of the words of `type`, "a|b|c".
  void add_choice(const char* names, const char* type, const char* help, std::string& target);
  // Its value may be left out: then `parse` gets nothing.
  void add_optional_value(const char* names, const char* type, const char* help, ValueParser parse);
  // Arguments without a flag, any number of them.
  void add_positionals(const char* name, const char* help, std::vector<std::string>& target);
  // Shown in the help, and nothing more.
  void add_help_entry(const char* name, const char* type, const char* help);
  // Called when all is parsed, to say whether it makes sense together.
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
