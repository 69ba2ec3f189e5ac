// A line of the screen: pieces of text, each with a style. Independent of the terminal.
#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/terminal.h"
#include "base/text.h"
#include "top/rows.h"

namespace berth::top {

struct StyledText {
  Style style = Style::plain;
  std::string text;  // escaped for the terminal: see Canvas::escape()
};

struct StyledLine {
  std::vector<StyledText> pieces{};
  bool selected = false;
  std::optional<RowKey> target{};  // what a click on the line selects

  StyledLine& add(Style style, std::string text) {
    if (!text.empty()) pieces.push_back({style, std::move(text)});
    return *this;
  }
  // Like add(), but continues the last piece if that has the same style.
  void extend(Style style, std::string_view text) {
    if (pieces.empty() || pieces.back().style != style) pieces.push_back({style, ""});
    pieces.back().text += text;
  }
  StyledLine& append(StyledLine other) {
    std::move(other.pieces.begin(), other.pieces.end(), std::back_inserter(pieces));
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

// The size and the character set for which lines are rendered.
struct Canvas {
  std::size_t width = 80;
  std::size_t height = 24;
  Charset charset = Charset::utf8;

  // Makes `text` safe to print: see printable().
  std::string escape(std::string_view text) const { return printable(text, charset); }
};

// Cuts the line to `columns`; a mark at its end shows that it was cut.
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
    // This piece fits exactly, but others follow: a blank makes it too wide, so that
    // truncate_text() marks the cut.
    if (!last && wide <= room) piece.text += ' ';
    piece.text = truncate_text(piece.text, room, charset);
    line.pieces.resize(i + 1);
    break;
  }
  return line;
}

}  // namespace berth::top
