// Parses CSV files; see csv.h.
#include "batch/csv.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <utility>

#include "base/text.h"
#include "batch/lines.h"

namespace berth::batch {
namespace {

class CsvReader {
 public:
  CsvReader(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  // The next row; nullopt at the end of the text.
  Result<std::optional<CsvRow>> next_row() {
    skip_blank_lines();
    if (text_.empty()) return std::nullopt;
    CsvRow row{line_, {}};
    do {
      row.values.push_back(TRY(read_value()));
    } while (take(','));
    if (take('\n')) ++line_;
    return row;
  }

  tl::unexpected<Error> error(std::size_t line, std::string_view problem) const {
    return usage_failure(fmt::format("line {} of {} {}", line, source_name(source_), problem));
  }

 private:
  bool take(char letter) {
    if (!text_.starts_with(letter)) return false;
    text_.remove_prefix(1);
    return true;
  }

  void skip_blanks() {
    text_.remove_prefix(std::min(text_.size(), text_.find_first_not_of(" \t\r")));
  }

  void skip_blank_lines() {
    for (skip_blanks(); take('\n'); skip_blanks()) ++line_;
  }

  Result<std::string> read_value() {
    skip_blanks();
    if (take('"')) return read_quoted_value();
    std::string_view value = text_.substr(0, text_.find_first_of(",\n"));
    text_.remove_prefix(value.size());
    value = value.substr(0, value.find_last_not_of(" \t\r") + 1);
    return std::string(value);
  }

  // The rest of a value whose opening quote was read.
  Result<std::string> read_quoted_value() {
    const std::size_t begin = line_;
    std::string value;
    for (;;) {
      const auto quote = text_.find('"');
      if (quote == std::string_view::npos)
        return error(begin, "has a quote that is not closed; write \"\" for a quote in a value");
      const std::string_view part = text_.substr(0, quote);
      line_ += static_cast<std::size_t>(std::count(part.begin(), part.end(), '\n'));
      value += part;
      text_.remove_prefix(quote + 1);
      if (!take('"')) break;
      value += '"';
    }
    skip_blanks();
    if (text_.empty() || text_.starts_with(',') || text_.starts_with('\n')) return value;
    return error(line_, "has text behind a closing quote; write \"\" for a quote in a value");
  }

  std::string_view text_;  // what is left
  std::string_view source_;
  std::size_t line_ = 1;
};

Result<void> check_columns(const CsvReader& reader, const CsvRow& header) {
  const auto& names = header.values;
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (name->empty()) {
      return reader.error(header.line, fmt::format("gives column {} no name; the first line names "
                                                   "all columns, such as lr,seed",
                                                   name - names.begin() + 1));
    }
    if (std::find(names.begin(), name, *name) != name) {
      return reader.error(header.line, fmt::format("names two columns {}; name each differently",
                                                   in_quotes(*name)));
    }
  }
  return {};
}

std::string count_of(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace

Result<CsvTable> parse_csv(std::string_view text, std::string_view source) {
  CsvReader reader(without_byte_order_mark(text), source);
  auto header = TRY(reader.next_row());
  if (!header) {
    return usage_failure(fmt::format(
        "{} is empty; its first line names the columns, such as lr,seed", source_name(source)));
  }
  TRY(check_columns(reader, *header));
  CsvTable table{std::move(header->values), {}};
  while (auto row = TRY(reader.next_row())) {
    if (row->values.size() != table.columns.size()) {
      return reader.error(row->line, fmt::format("has {}, but the first line names {}; write one "
                                                 "value for each column",
                                                 count_of(row->values.size(), "value"),
                                                 count_of(table.columns.size(), "column")));
    }
    table.rows.push_back(std::move(*row));
  }
  return table;
}

}  // namespace berth::batch
