// Reads the lines of a file that another, possibly hostile, user may have written.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "base/unique_fd.h"

namespace berth {

// Berth never writes a longer line.
constexpr std::size_t kMaxLineBytes = 256 << 10;

// The lines of a regular file that begin at `offset` or later. The owner can make the file any
// size: LineReader reads it block by block, skips the holes of a sparse file, and of an implausibly
// large file reads only the end. In place of a line that is too long it returns a text that is not
// a valid line. It does not map the file into memory, because the process would be killed (SIGBUS)
// if the owner truncated the file. A file that cannot be opened has no lines.
class LineReader {
 public:
  LineReader(int directory, const std::string& name, off_t offset);

  // The next complete line, without its end; nullopt if there is none. Valid until the next call.
  std::optional<std::string_view> next();

  // The offset behind the last line that next() returned.
  off_t offset() const { return offset_; }

 private:
  bool read_block();
  std::size_t find_data();

  UniqueFd file_;
  off_t offset_;
  off_t read_offset_ = 0;         // up to where the file was read
  bool in_partial_line_ = false;  // the current line begins before the first offset
  off_t hole_bytes_ = 0;          // skipped in the current line
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  // of the next line, in the buffer
  std::size_t end_ = 0;    // of the data in the buffer
};

}  // namespace berth
