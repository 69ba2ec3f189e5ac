// Reads the commands of a batch: from a file, from stdin, or from the command line.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace berth::batch {

struct BatchLine {
  std::size_t number = 0;  // of the command, from 1
  std::size_t line = 0;    // in the file, from 1; 0: the command does not come from a file
  std::string command;     // for the shell; any bytes but NUL
  std::string key;         // unique; does not change when other lines of the file change
};

// Makes the lines of a batch from commands, one after the other.
class LineCollector {
 public:
  // Adds a command; `line` is its line in the file, 0 if there is none. Returns what is wrong with
  // the command, or null if it was added.
  const char* add(std::string_view command, std::size_t line);
  std::size_t count() const { return lines_.size(); }
  std::vector<BatchLine> take_lines() { return std::move(lines_); }

 private:
  std::vector<BatchLine> lines_;
  std::map<std::string, std::size_t> seen_;  // how often each command was added
};

// Parses one command per line. Skips blank lines and lines that begin with #. Lines may end with CR
// LF. `source` is the name of the file for the error (ErrorKind::usage).
Result<std::vector<BatchLine>> parse_lines(std::string_view text, std::string_view source);

// The same for commands of the command line. Skips blank ones.
Result<std::vector<BatchLine>> make_lines(const std::vector<std::string>& words);

// An error of ErrorKind::usage that names the command: "batch: PROBLEM".
tl::unexpected<Error> usage_failure(std::string_view problem);

// The name of a file for an error: "stdin" for "-".
std::string source_name(std::string_view path);

// Some editors begin a file in UTF-8 with a byte order mark.
std::string_view without_byte_order_mark(std::string_view text);

// Reads a whole file, or stdin if `path` is "-". ErrorKind::usage if that fails; `content` says in
// the message what such a file has.
Result<std::string> read_source(const std::string& path, std::string_view content);

// "0017-python_train.py_--lr_0.1.log": valid on every file system; sorts in the order of the lines.
std::string log_name(const BatchLine& line, std::size_t total);

// The log folder of a batch from this file if the user gives none: "jobs.logs".
std::string default_log_folder(std::string_view path);

// The same for commands that do not come from a file: "batch-1f3870be.logs". The same commands have
// the same folder, so that --resume finds it.
std::string default_log_folder(const std::vector<BatchLine>& lines);

}  // namespace berth::batch
