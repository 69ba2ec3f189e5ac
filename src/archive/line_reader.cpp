// Reads a file block by block and splits it into lines; see line_reader.h.
#include "archive/line_reader.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "archive/user_folder.h"

namespace berth {
namespace {

constexpr std::size_t kBlockBytes = 256 << 10;  // fits into the processor's cache
constexpr off_t kMaxBytes = off_t{1} << 29;

}  // namespace

LineReader::LineReader(int directory, const std::string& name, off_t offset)
    : file_(open_inside(directory, name.c_str(), O_RDONLY)), offset_(offset) {
  struct stat status {};
  if (!file_ || ::fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode)) file_.reset();
  // Of an implausibly large file, read only the end.
  if (file_ && status.st_size - offset_ > kMaxBytes) offset_ = status.st_size - kMaxBytes;
  read_offset_ = offset_;
  char previous = '\n';
  if (file_ && offset_ > 0 && ::pread(file_.get(), &previous, 1, offset_ - 1) == 1) {
    in_partial_line_ = previous != '\n';
  }
}

std::optional<std::string_view> LineReader::next() {
  bool too_long = false;
  for (;;) {
    const std::string_view pending(buffer_.data() + begin_, end_ - begin_);
    const auto length = pending.find('\n');
    if (length != std::string_view::npos) {
      offset_ += static_cast<off_t>(length + 1) + std::exchange(hole_bytes_, 0);
      begin_ += length + 1;
      if (std::exchange(in_partial_line_, false)) {
        too_long = false;
        continue;
      }
      return too_long ? std::string_view("too long") : pending.substr(0, length);
    }
    if (pending.size() > kMaxLineBytes) {
      too_long = true;
      offset_ += static_cast<off_t>(pending.size()) + std::exchange(hole_bytes_, 0);
      begin_ = end_;
    }
    if (!read_block()) return std::nullopt;
  }
}

// Skips a hole. Returns how many bytes behind it can be read at once; 0 at the end of the file.
std::size_t LineReader::find_data() {
  if (!file_) return 0;
  const off_t data = ::lseek(file_.get(), read_offset_, SEEK_DATA);
  if (data < 0) return errno == ENXIO ? 0 : kBlockBytes;  // ENXIO: no data follows
  hole_bytes_ += data - std::exchange(read_offset_, data);
  const off_t end = ::lseek(file_.get(), read_offset_, SEEK_HOLE);
  return end <= read_offset_ ? kBlockBytes
                             : std::min(kBlockBytes, static_cast<std::size_t>(end - read_offset_));
}

// Moves the incomplete line to the front of the buffer, and appends the next block.
bool LineReader::read_block() {
  std::copy(buffer_.data() + begin_, buffer_.data() + end_, buffer_.data());
  end_ -= begin_;
  begin_ = 0;
  if (buffer_.size() - end_ < kBlockBytes) buffer_.resize(end_ + kBlockBytes);
  const std::size_t available = find_data();
  ssize_t bytes_read = available > 0 ? -1 : 0;
  while (available > 0 && bytes_read < 0) {
    bytes_read = ::pread(file_.get(), buffer_.data() + end_, available, read_offset_);
    if (bytes_read < 0 && errno != EINTR) break;
  }
  if (bytes_read <= 0) return false;
  read_offset_ += bytes_read;
  end_ += static_cast<std::size_t>(bytes_read);
  return true;
}

}  // namespace berth
