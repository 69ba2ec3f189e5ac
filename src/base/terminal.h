// What the place that output goes to can show: its width, its characters, its colours.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/text.h"

namespace berth {

enum class Style { plain, dim, bold, good, notice, warning, bad };

struct Terminal {
  std::optional<std::size_t> width;   // columns; nothing if lines may be as long as they like
  std::optional<std::size_t> height;  // rows, if it is a terminal
  Charset charset = Charset::ascii;
  bool drawable = false;  // a terminal whose cursor can be moved
  bool colour = false;

  // `text` made fit for this place: see printable().
  std::string escape(std::string_view text) const { return printable(text, charset); }
  // `text`, which must be fit already, in a style; unchanged where there is no colour.
  std::string paint(Style style, std::string_view text) const;
};

// The terminal behind the descriptor `fd`, or a file or pipe: no colour, and no limit of width
// unless COLUMNS says so. NO_COLOR, TERM=dumb and the locale's character set are obeyed.
Terminal terminal_at(int fd);

// Writes whole texts to stdout or stderr. Neither throws: that stdout failed is seen when it is
// flushed at the end, and where stderr fails there is nobody left to tell.
void print(std::string_view text);
void print_error(std::string_view text);

// A line of berth's own on stderr, with `text` made fit for it: "berth: TEXT".
void print_message(std::string_view text);

// Tells a person at a terminal why nothing happens.
void print_driver_is_slow();

// `text` broken at blanks into lines of at most `width` columns, each behind `indent` blanks.
std::string wrap_text(std::string_view text, std::optional<std::size_t> width, std::size_t indent);

// `text` filled up with blanks to `width` columns.
std::string align_left(std::string_view text, std::size_t width);
std::string align_right(std::string_view text, std::size_t width);

}  // namespace berth
