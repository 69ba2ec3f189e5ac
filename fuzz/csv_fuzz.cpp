// Fuzzes CSV files, which `berth batch --csv` reads and whose values it inserts into a command.
#include <algorithm>
#include <string>
#include <vector>

#include "batch/csv.h"
#include "batch/sweep.h"
#include "fuzz/fuzz.h"

namespace berth {
namespace {

using namespace batch;

void append_row(std::string& text, const std::vector<std::string>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    text += i == 0 ? "\"" : ",\"";
    for (const char letter : values[i]) text.append(letter == '"' ? 2 : 1, letter);
    text += '"';
  }
  text += '\n';
}

void check_table(const CsvTable& table) {
  std::string text;
  append_row(text, table.columns);
  for (const CsvRow& row : table.rows) append_row(text, row.values);
  const auto again = parse_csv(text, "file");
  check(again.has_value() && again->columns == table.columns, "a written header is the same");
  check(std::equal(again->rows.begin(), again->rows.end(), table.rows.begin(), table.rows.end(),
                   [](const CsvRow& a, const CsvRow& b) { return a.values == b.values; }),
        "written rows are the same");
}

// A value is in single quotes, or has no character that is special to a shell.
void check_commands(const CsvTable& table) {
  const auto lines = make_table_lines({"x{1}"}, table, "file");
  if (!lines) return check(is_printable(lines.error().message), "the error is printable");
  check(lines->size() == table.rows.size(), "each row is a line");
  for (const BatchLine& line : *lines) {
    bool quoted = false;
    for (std::size_t i = 0; i < line.command.size(); ++i) {
      const char letter = line.command[i];
      if (letter == '\'') quoted = !quoted;
      if (letter == '\\' && !quoted) ++i;  // "\'" between two texts in quotes
      check(quoted || std::string_view(" \t\n\r;&|<>()$`\"*?[]{}#!~^").find(letter) ==
                          std::string_view::npos,
            "a character that is special to a shell is in quotes");
    }
    check(!quoted, "the quotes are closed");
  }
}

}  // namespace

void fuzz(std::string_view input) {
  const auto table = parse_csv(input, "file");
  if (!table) {
    check(is_printable(table.error().message), "the error is printable");
    check(table.error().message.size() < 1000, "the error is short");
    return;
  }
  check_table(*table);
  check_commands(*table);
}

}  // namespace berth
