// Output to a terminal, file or pipe: what it can show (width, characters, colours), and layout.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/text.h"

namespace berth {

enum class Style { plain, dim, bold, good, notice, warning, bad };

struct Terminal {
  std::optional<std::size_t> width;   // in columns; nullopt: no limit
  std::optional<std::size_t> height;  // in rows; nullopt: not a terminal, or unknown
  Charset charset = Charset::ascii;
  bool drawable = false;  // a terminal whose cursor can be moved
  bool colour = false;

  // `text` escaped by printable() for this character set.
  std::string escape(std::string_view text) const { return printable(text, charset); }
  // `text`, which the caller has escaped, in a style; unchanged without colour.
  std::string paint(Style style, std::string_view text) const;
};

// What the terminal, file or pipe at the descriptor `fd` can show. A file or pipe has no colour,
// and no limit of width unless COLUMNS is set. NO_COLOR, TERM=dumb and the locale's character set
// count.
Terminal terminal_at(int fd);

// Write `text` to stdout or stderr. They do not report errors: main() detects a failed stdout when
// it flushes at the end, and a failed stderr leaves no place for a message.
void print(std::string_view text);
void print_error(std::string_view text);

// Writes the line "berth: TEXT" to stderr, with `text` escaped.
void print_message(std::string_view text);

// Says on stderr that the driver has not answered yet, if stderr is a terminal.
void print_driver_is_slow();

// `text` broken at blanks into lines of at most `width` columns, each indented by `indent` blanks.
std::string wrap_text(std::string_view text, std::optional<std::size_t> width, std::size_t indent);

// `text` padded with blanks to `width` columns; unchanged if it is wider.
std::string align_left(std::string_view text, std::size_t width);
std::string align_right(std::string_view text, std::size_t width);

}  // namespace berth
