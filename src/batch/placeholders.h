// Finds the placeholders of a command, and says which values the shell would read in their place
// without harm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace berth::batch {

// Where a placeholder stands, as /bin/sh and bash read the command.
enum class PlaceholderContext : std::uint8_t {
  plain,         // a value in single quotes is one argument here, or a part of one
  quoted,        // inside '…' or "…"
  comment,       // behind #
  not_followed,  // behind a part of the command whose quotes this parser does not follow
};

// "{NAME}" in a command.
struct Placeholder {
  std::size_t begin;      // of the brace
  std::string_view name;  // between the braces
  PlaceholderContext context = PlaceholderContext::plain;
  // For not_followed: the text from which on the parser does not follow the shell, such as "<<".
  std::string_view cause{};
  // The name of a variable stands directly before, as in "$x{}": letters of a value would become
  // a part of that name.
  bool follows_variable = false;
};

// All texts in braces without a blank, quote or line break. Not "${NAME}", which is a variable of
// the shell, and not "\{NAME}".
std::vector<Placeholder> find_placeholders(std::string_view command);

// Whether a value has no character that is special to a shell, in any context.
bool is_plain_value(std::string_view value);

}  // namespace berth::batch
