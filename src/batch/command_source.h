// Where the commands of a batch come from: a file, stdin, the command line, lists of values or a
// CSV file.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "batch/lines.h"

namespace berth::batch {

// The part of the command line that says it.
struct CommandSource {
  std::vector<std::string> arguments{};  // FILE; the user may have written too many
  std::string csv{};                     // --csv; empty: not given
  std::vector<std::string> words{};      // behind "--"

  // The path of the file by which the logs are named; empty if there is none, or it is stdin.
  std::string named_file() const;
  // Whether values are inserted into a command: {} has a meaning.
  bool is_sweep() const;
};

// ErrorKind::usage: the parts contradict each other, a file cannot be read, or has mistakes.
Result<std::vector<BatchLine>> read_commands(const CommandSource& source);

}  // namespace berth::batch
