// The commands of a batch: from a file, from stdin, or from the command line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace berth::batch {

struct BatchLine {
  std::size_t number = 0;  // among the commands, from 1
  std::size_t line = 0;    // in the file, from 1; 0: it comes from no file
  std::string command;     // for the shell, any bytes but NUL
  std::string key;  // tells it from the others; the same in a file that was changed elsewhere
};

// One command per line. Blank lines, and lines that begin with #, are none; the ends of lines may
// be those of Windows. `source` is for the Error (ErrorKind::usage), which names the line.
Result<std::vector<BatchLine>> parse_lines(std::string_view text, std::string_view source);

// The same of words that are commands already.
Result<std::vector<BatchLine>> make_lines(const std::vector<std::string>& words);

// The whole of a file; "-" is stdin, to its end.
Result<std::string> read_source(const std::string& path);

// "0017-python_train.py_--lr_0.1.log": fit for every file system, and sorted as the lines are.
std::string log_name(const BatchLine& line, std::size_t total);

// What the logs of a batch from this file are put into, where nobody says: "jobs.logs".
std::string default_log_folder(std::string_view path);

}  // namespace berth::batch
