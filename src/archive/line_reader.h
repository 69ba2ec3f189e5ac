// The lines of a file that somebody else may have written.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "base/unique_fd.h"

namespace berth {

// What is longer is no line of ours.
constexpr std::size_t kMaxLineBytes = 256 << 10;

// The lines of a regular file that begin at `offset` or behind it, piece by piece: its owner may
// have made it of any length. Holes, which the owner never wrote, are passed over. A line that is
// too long is given as one that cannot be read. The file is not mapped: the reader would be killed
// if the owner truncated the file.
class LineReader {
 public:
  LineReader(int directory, const std::string& name, off_t offset);

  // Nothing at the end. True until the next one is asked for.
  std::optional<std::string_view> next();

  // Where the lines that were given end.
  off_t offset() const { return offset_; }

 private:
  bool read_block();
  std::size_t find_data();

  UniqueFd file_;
  off_t offset_;
  off_t read_offset_ = 0;         // how much of the file is in the piece, or was
  bool in_partial_line_ = false;  // the line at hand begins before the first offset
  off_t hole_bytes_ = 0;          // how much of that was passed over, in the line at hand
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  // of the next line, in the piece
  std::size_t end_ = 0;    // of what was read
};

}  // namespace berth
