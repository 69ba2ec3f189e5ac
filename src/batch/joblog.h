// The joblog: records which lines of a batch have ended, and how, so that --resume can continue it.
//
// A file of JSON lines, described in docs/batch.md. Each is appended by one write(2). If the batch
// is killed during a write, only that line is lost. Only one batch at a time can open a joblog.
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

// How a line of a batch ended.
struct LineResult {
  int code = 0;  // the exit code; 128+N for signal N
  bool timed_out = false;
  bool out_of_memory = false;
  unsigned attempts = 1;
  TimePoint begin{};  // of the last attempt
  TimePoint end{};
  std::string lease{};  // empty: no lease was granted
  std::string gpus{};   // "0,1"
  std::string log{};

  bool succeeded() const { return code == 0 && !timed_out; }
  // The number of the signal that ended it; nullopt if it exited.
  std::optional<int> signal() const;
};

// The content of a joblog; lines that cannot be parsed are skipped.
struct JoblogContent {
  std::map<std::string, bool> lines{};  // BatchLine::key -> whether its last run succeeded
  bool is_joblog = false;               // it has at least one line of a joblog
  bool finished = false;                // in the last batch, all lines succeeded
  std::size_t total = 0;                // number of lines of the last batch
  std::size_t succeeded() const;
};
JoblogContent parse_joblog(std::string_view text);

std::string format_joblog_line(const BatchLine& line, const LineResult& result);

// How many lines of a batch ended in which way.
struct LineCounts {
  std::size_t succeeded = 0;
  std::size_t failed = 0;
  std::size_t interrupted = 0;  // started, and stopped before they ended
  std::size_t not_started = 0;
};

// Reads a joblog that a batch may be writing, without a lock. Empty if there is no file. Errors are
// as those of Joblog::open().
Result<JoblogContent> read_joblog(const std::string& path);

// Used by one thread.
class Joblog {
 public:
  // Opens or creates the file and locks it, until this object is destroyed. A file in the folder
  // `logs` is opened through that folder. ErrorKind::usage: another batch has locked the file, or
  // it is not a joblog. ErrorKind::io: it cannot be used, or is not a private file of this user.
  static Result<Joblog> open(const std::string& path, const LogFolder& logs);

  const JoblogContent& content() const { return content_; }
  const std::string& path() const { return path_; }
  // Truncates the file.
  void clear();
  // Writing does not fail visibly: see problem().
  void write_begin(std::size_t total, TimePoint now);
  void write_line(const BatchLine& line, const LineResult& result);
  void write_end(const LineCounts& counts, TimePoint now);
  // The message for the user, if a line could not be written.
  std::optional<std::string> problem() const;

 private:
  void append(const std::string& line);

  std::string path_;
  UniqueFd file_;
  JoblogContent content_;
  bool last_line_incomplete_ = false;  // the file does not end with a newline
  int problem_ = 0;                    // errno of the last write that failed
};

}  // namespace berth::batch
