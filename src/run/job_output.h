// Prints the output of detached jobs (`berth logs`, `berth attach`), and follows it while it grows.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/result.h"
#include "base/signals.h"
#include "base/unique_fd.h"
#include "run/job_folder.h"

namespace berth {

// Reads the output of a job in pieces, without the holes that output_limit.h makes, even while it
// makes them.
class OutputReader {
 public:
  // ErrorKind::io
  static Result<OutputReader> open(const std::string& path);

  // Begins with the last `lines` lines that are there now. A hole counts as a line break.
  void seek_last_lines(std::size_t lines);
  // Begins with the last `bytes` bytes that are there now, holes included.
  void seek_last_bytes(std::size_t bytes);

  struct Piece {
    std::string bytes;
    off_t missing = 0;  // instead of `bytes`: the size of the hole
  };
  // nullopt: there is no more now.
  std::optional<Piece> read_next();

 private:
  explicit OutputReader(UniqueFd file) : file_(std::move(file)) {}

  struct Extent {
    off_t begin;
    off_t end;
  };
  std::vector<Extent> list_extents() const;
  off_t size() const;

  UniqueFd file_;
  off_t offset_ = 0;
};

struct OutputOptions {
  std::optional<std::size_t> lines{};  // only the last ones
  bool follow = false;                 // until the job's berth process has ended
  // Signals to react to while the output is printed; null: they have their usual effect.
  SignalQueue* signals = nullptr;
  std::function<bool(int number)> on_signal{};  // false: stop
};

// Writes the output to stdout, and on stderr how much of it is not kept. The result is the signal
// that stopped it (SIGPIPE: the reader of stdout is gone); nullopt: it reached the end.
Result<std::optional<int>> print_job_output(const DetachedJob& job, const OutputOptions& options);

}  // namespace berth
