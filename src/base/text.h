// Text from users, drivers and files, made fit for a terminal.
//
// Nothing that berth did not write itself reaches a terminal without passing through printable():
// names, commands and labels can contain escape sequences, line breaks, bidirectional controls or
// bytes that are not UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace berth {

enum class Charset { ascii, utf8 };

// `text` with every control character, invisible or direction-changing code point and invalid byte
// replaced by a visible escape (\n, \x1b, \u202e). With Charset::ascii whatever is not ASCII too.
std::string printable(std::string_view text, Charset charset = Charset::utf8);

// printable() in single quotes, shortened if it is very long: for error messages.
std::string in_quotes(std::string_view text);

// With the letters of ASCII in lower case; whatever else there is stays.
std::string lower_case(std::string_view text);

// Bytes of the code point at the start of `text`, which is not empty; 0 if they are not UTF-8.
std::size_t utf8_length(std::string_view text);

// Columns that `text`, which must be printable, takes up on a terminal.
std::size_t display_width(std::string_view text);

// The longest start of `text` (printable) that fits in `columns`, its end marked when it was cut.
std::string truncate_text(std::string_view text, std::size_t columns,
                          Charset charset = Charset::utf8);

// The same, but what is cut out is in the middle: for names that end in what tells them apart.
std::string truncate_middle(std::string_view text, std::size_t columns,
                            Charset charset = Charset::utf8);

}  // namespace berth
