// Finds the placeholders of a command, and says which values the shell would read in their place
// without harm.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace berth::batch {

// "{NAME}" in a command.
struct Placeholder {
  std::size_t begin;      // of the brace
  std::string_view name;  // between the braces
  // Whether a value in single quotes is one argument here. It is not inside other quotes, and where
  // the shell reads text in a way that this parser does not follow: here-documents, arithmetic,
  // comments, and commands inside double quotes.
  bool accepts_quotes;
};

// All texts in braces without a blank, quote or line break. Not "${NAME}", which is a variable of
// the shell, and not "\{NAME}".
std::vector<Placeholder> find_placeholders(std::string_view command);

// Whether a value means itself everywhere in a command: it has no character that is special to a
// shell.
bool is_plain_value(std::string_view value);

}  // namespace berth::batch
