// Reads the end of what a job wrote to stdout and stderr, if those are files.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

namespace berth {

// Construct it before the job starts: what the files contained before is not the job's output.
class OutputTail {
 public:
  OutputTail();

  // Whether stderr, where programs report errors, is a file. False for a terminal or a pipe.
  bool has_stderr() const;
  // The end of what the job wrote to those of stdout and stderr that are regular files.
  std::string read() const;

 private:
  struct OutputFile {
    int fd;
    off_t begin;
  };
  std::vector<OutputFile> outputs_;
};

}  // namespace berth
