// Reads the commands of a batch: from a file, from stdin, or from the command line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace berth::batch {

struct BatchLine {
  std::size_t number = 0;  // of the command, from 1
  std::size_t line = 0;    // in the file, from 1; 0: the command does not come from a file
  std::string command;     // for the shell; any bytes but NUL
  std::string key;         // unique; does not change when other lines of the file change
};

// Parses one command per line. Skips blank lines and lines that begin with #. Lines may end with CR
// LF. `source` is the name of the file for the error (ErrorKind::usage).
Result<std::vector<BatchLine>> parse_lines(std::string_view text, std::string_view source);

// The same for commands of the command line. Skips blank ones.
Result<std::vector<BatchLine>> make_lines(const std::vector<std::string>& words);

// Reads a whole file, or stdin if `path` is "-". ErrorKind::usage if that fails.
Result<std::string> read_source(const std::string& path);

// "0017-python_train.py_--lr_0.1.log": valid on every file system; sorts in the order of the lines.
std::string log_name(const BatchLine& line, std::size_t total);

// The log folder of a batch from this file if the user gives none: "jobs.logs".
std::string default_log_folder(std::string_view path);

}  // namespace berth::batch
