// Parameter sweeps: the lines of a batch from one command and values for its placeholders.
//
// The placeholders are those of GNU parallel: {} and {1}, {2}, ... for the values, {#} for the
// number of the line; with a CSV file also {name}, by column. Each value becomes one argument,
// whatever it contains. docs/batch.md has the rules.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "batch/csv.h"
#include "batch/lines.h"

namespace berth::batch {

// Whether `words` have lists of values, each behind ":::" or ":::+".
bool has_lists(const std::vector<std::string>& words);

// One line for each combination of the lists; the last list changes fastest. The words before the
// first ":::" are the command. ErrorKind::usage.
Result<std::vector<BatchLine>> make_list_lines(const std::vector<std::string>& words);

// One line for each row of the table. `source` is the name of its file. ErrorKind::usage.
Result<std::vector<BatchLine>> make_table_lines(const std::vector<std::string>& command,
                                                const CsvTable& table, std::string_view source);

}  // namespace berth::batch
