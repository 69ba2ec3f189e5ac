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
  using Take = std::function<Result<void>(std::string_view text)>;

  // The heading in the help for what is declared from here on; "" hides it there.
  void group(std::string heading) { group_ = std::move(heading); }

  void flag(const char* name, bool& target, const char* help);
  // With a value, given once at most. A type that reads "a|b|c" completes to these words.
  void value(const char* names, const char* type, const char* help, Take take);
  // May be given again and again.
  void several(const char* names, const char* type, const char* help, Take take);
  // One of the words of `type`, "a|b|c".
  void choice(const char* names, const char* type, const char* help, std::string& target);
  // Its value may be left out: then `take` gets nothing.
  void optional_value(const char* names, const char* type, const char* help, Take take);
  // Arguments without a flag, any number of them.
  void words(const char* name, const char* help, std::vector<std::string>& target);
  // Shown in the help, and nothing more.
  void mention(const char* name, const char* type, const char* help);
  // Called when all is parsed, to say whether it makes sense together.
  void finally(std::function<Result<void>()> check);
  void footer(const char* text);

  CLI::App& parser() { return parser_; }

 private:
  enum class Often : std::uint8_t { once, any };
  CLI::Option* declare(const char* names, const char* type, const char* help, Take take,
                       Often often = Often::once);

  CLI::App& parser_;
  std::string group_ = "Options";
};

}  // namespace berth
