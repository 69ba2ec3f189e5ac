// Parses the CSV file of `berth batch --csv`: a header with the names of the columns, and rows.
//
// The format is that of RFC 4180, with commas: a value in double quotes may contain commas, line
// breaks, and quotes written twice. Beyond that, lines may end with LF alone, blank lines are
// skipped, and blanks around a value do not count.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace berth::batch {

struct CsvRow {
  std::size_t line = 0;  // of the file, from 1, on which the row begins
  std::vector<std::string> values{};
};

struct CsvTable {
  std::vector<std::string> columns{};  // their names: neither empty nor twice the same
  std::vector<CsvRow> rows{};          // each with as many values as there are columns
};

// `source` is the name of the file for the error (ErrorKind::usage).
Result<CsvTable> parse_csv(std::string_view text, std::string_view source);

}  // namespace berth::batch
