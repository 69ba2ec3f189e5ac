// The joblog: which lines of a batch have ended, and how, so that an interrupted batch can go on.
//
// A file of lines of JSON, each appended by one write(2); docs/batch.md describes them. A line that
// was being written when its writer was killed loses only itself. One batch at a time has it.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "batch/lines.h"
#include "batch/log_folder.h"
#include "schedule/plan.h"

namespace berth::batch {

// How a line of the batch has ended.
struct LineResult {
  int code = 0;  // the exit code; 128+N for signal N
  bool timed_out = false;
  bool out_of_memory = false;
  unsigned attempts = 1;
  TimePoint begin{};  // of the last attempt
  TimePoint end{};
  std::string lease{};  // empty: it never had one
  std::string gpus{};   // "0,1"
  std::string log{};

  bool succeeded() const { return code == 0 && !timed_out; }
};

// What a joblog says, as far as it can be read.
struct JoblogContent {
  std::map<std::string, bool> lines{};  // by key: whether it succeeded the last time
  bool is_joblog = false;               // it holds something that is a joblog's
  bool finished = false;                // the last batch in it has run all lines, with success
  std::size_t total = 0;                // how many lines that batch had
  std::size_t succeeded() const;
};
JoblogContent parse_joblog(std::string_view text);

std::string format_joblog_line(const BatchLine& line, const LineResult& result);

class Joblog {
 public:
  // Opens it, or makes it, and locks it. ErrorKind::usage where another batch has it, or it is
  // something else; also where it cannot be written. `logs` opens it if it lies there.
  static Result<Joblog> open(const std::string& path, const LogFolder& logs);

  const JoblogContent& content() const { return content_; }
  const std::string& path() const { return path_; }
  // Forgets what is there.
  void clear();
  void write_begin(std::size_t total, TimePoint now);
  void write_line(const BatchLine& line, const LineResult& result);
  void write_end(std::size_t succeeded, std::size_t failed, std::size_t not_run, TimePoint now);
  // What kept the last lines from being written, if anything.
  std::optional<std::string> problem() const;

 private:
  void append(const std::string& line);

  std::string path_;
  UniqueFd file_;
  JoblogContent content_;
  bool last_line_incomplete_ = false;  // the last line has no end
  int problem_ = 0;                    // errno
};

}  // namespace berth::batch
