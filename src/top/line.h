// A line of the view: pieces of text, each in a style, without a word about the terminal.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/terminal.h"
#include "base/text.h"

namespace berth::top {

struct StyledText {
  Style style = Style::plain;
  std::string text;  // fit for the terminal, see printable()
};

struct StyledLine {
  std::vector<StyledText> pieces{};
  bool selected = false;

  StyledLine& add(Style style, std::string text) {
    if (!text.empty()) pieces.push_back({style, std::move(text)});
    return *this;
  }
  std::size_t width() const {
    std::size_t sum = 0;
    for (const StyledText& piece : pieces) sum += display_width(piece.text);
    return sum;
  }
  std::string text() const {
    std::string all;
    for (const StyledText& piece : pieces) all += piece.text;
    return all;
  }
};

inline StyledLine make_line(Style style, std::string text) {
  StyledLine line;
  line.add(style, std::move(text));
  return line;
}

// What the lines are made for.
struct Canvas {
  std::size_t width = 80;
  std::size_t height = 24;
  Charset charset = Charset::utf8;

  std::string show(std::string_view text) const { return printable(text, charset); }
};

// The start of the line that fits in `columns`, its end marked when it was cut.
inline StyledLine truncate_line(StyledLine line, std::size_t columns, Charset charset) {
  std::size_t room = columns;
  for (std::size_t i = 0; i < line.pieces.size(); ++i) {
    StyledText& piece = line.pieces[i];
    const std::size_t wide = display_width(piece.text);
    const bool last = i + 1 == line.pieces.size();
    if (wide < room || (wide == room && last)) {
      room -= wide;
      continue;
    }
    // One column more than there is room for, so that the end is marked though a piece fits.
    if (!last && wide <= room) piece.text += ' ';
    piece.text = truncate_text(piece.text, room, charset);
    line.pieces.resize(i + 1);
    break;
  }
  return line;
}

}  // namespace berth::top
