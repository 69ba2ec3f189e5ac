// A table of text for a terminal: columns as wide as their cells need, the last one as wide as the
// terminal permits, and notes below or behind the cells.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/terminal.h"

namespace berth {

struct Cell {
  std::string text{};  // escaped for the terminal
  Style style = Style::plain;
};

struct TableColumn {
  std::string_view title;
  bool right_aligned = false;
  std::size_t max_width = ~0UL;
  std::size_t width = 0;  // 0: left out
};

struct TableRow {
  std::vector<Cell> cells;
  std::string note{};  // replaces the cells that are missing at the end
  Style note_style = Style::plain;
};

// Rows whose last column takes the room that the others leave. Refers to `terminal`.
class TextTable {
 public:
  // A narrow terminal has no room for the columns in `optional`, the first of which goes first.
  TextTable(std::vector<TableColumn> columns, std::vector<TableRow> rows,
            const std::vector<std::size_t>& optional, const Terminal& terminal);

  std::string render() const;

 private:
  std::size_t begin_of(std::size_t c) const;
  std::size_t room_behind(std::size_t c) const;
  std::string render(const TableRow& row) const;

  std::vector<TableColumn> columns_;
  std::vector<TableRow> rows_;
  const Terminal& terminal_;
};

}  // namespace berth
