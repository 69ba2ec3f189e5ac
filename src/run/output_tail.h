// What a job wrote at its end, where that can be read again: its output went into a file.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

namespace berth {

// Made before the job starts: what was in the files before is not the job's.
class OutputTail {
 public:
  OutputTail();

  // Is its stderr among them, where programs complain? Not if that is a terminal or a pipe.
  bool has_stderr() const;
  // The end of what it wrote to stdout and stderr, as far as those are regular files.
  std::string read() const;

 private:
  struct OutputFile {
    int fd;
    off_t begin;
  };
  std::vector<OutputFile> outputs_;
};

}  // namespace berth
