// Lays out a table for a terminal; see text_table.h.
#include "cli/output/text_table.h"

#include <algorithm>
#include <utility>

namespace berth {
namespace {

constexpr std::string_view kGapText = "  ";
constexpr std::size_t kMinLastWidth = 12;
// With less room than this behind the cells, a note begins on a line of its own.
constexpr std::size_t kMinNoteWidth = 24;
constexpr std::size_t kNarrowNoteIndent = 5;

}  // namespace

TextTable::TextTable(std::vector<TableColumn> columns, std::vector<TableRow> rows,
                     const std::vector<std::size_t>& optional, const Terminal& terminal)
    : columns_(std::move(columns)), rows_(std::move(rows)), terminal_(terminal) {
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    TableColumn& column = columns_[c];
    column.width = display_width(column.title);
    for (const TableRow& row : rows_) {
      if (c < row.cells.size())
        column.width = std::max(column.width, display_width(row.cells[c].text));
    }
    column.width = std::min(column.width, column.max_width);
  }
  if (!terminal.width) return;
  const std::size_t wanted = std::min(columns_.back().width, kMinLastWidth);
  for (const std::size_t c : optional) {
    if (room_behind(columns_.size() - 1) < wanted) columns_[c].width = 0;
  }
  // A column that does not fit is cut, and those behind it are left out.
  for (std::size_t c = 0; c + 1 < columns_.size(); ++c)
    columns_[c].width = std::min(columns_[c].width, room_behind(c));
  columns_.back().width = room_behind(columns_.size() - 1);
}

std::string TextTable::render() const {
  TableRow titles;
  for (const TableColumn& column : columns_)
    titles.cells.push_back({std::string(column.title), Style::dim});
  std::string out = render(titles);
  for (const TableRow& row : rows_) out += render(row);
  return out;
}

// Where column `c` begins.
std::size_t TextTable::begin_of(std::size_t c) const {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < c; ++i) {
    if (columns_[i].width > 0) sum += columns_[i].width + kGapText.size();
  }
  return sum;
}

std::size_t TextTable::room_behind(std::size_t c) const {
  const std::size_t begin = begin_of(c);
  return *terminal_.width > begin ? *terminal_.width - begin : 0;
}

std::string TextTable::render(const TableRow& row) const {
  std::string out;
  std::string gap;  // blanks are written only before a cell that is not empty
  for (std::size_t c = 0; c < row.cells.size(); ++c) {
    const TableColumn& column = columns_[c];
    if (column.width == 0) continue;
    const Cell& cell = row.cells[c];
    const std::string text = truncate_text(cell.text, column.width, terminal_.charset);
    const std::string blanks(column.width - display_width(text), ' ');
    if (column.right_aligned) gap += blanks;
    if (!text.empty()) out += std::exchange(gap, "") + terminal_.paint(cell.style, text);
    if (!column.right_aligned) gap += blanks;
    gap += kGapText;
  }
  if (row.note.empty()) return out + "\n";
  const std::size_t begin = begin_of(row.cells.size());
  const bool fits = !terminal_.width || *terminal_.width >= begin + kMinNoteWidth;
  const std::size_t indent = fits ? begin : kNarrowNoteIndent;
  const std::string wrapped = wrap_text(row.note, terminal_.width, indent);
  return out + (fits ? gap : "\n" + std::string(indent, ' ')) +
         terminal_.paint(row.note_style, std::string_view(wrapped).substr(indent)) + "\n";
}

}  // namespace berth
