// Reading of lines; see lines.h.
#include "archive/lines.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "archive/folder.h"

namespace berth {
namespace {

constexpr std::size_t kPiece = 256 << 10;  // which the processor's cache holds
constexpr off_t kMostBytes = off_t{1} << 29;

}  // namespace

Lines::Lines(int directory, const std::string& name, off_t offset)
    : file_(open_inside(directory, name.c_str(), O_RDONLY)), offset_(offset) {
  struct stat about {};
  if (!file_ || ::fstat(file_.get(), &about) != 0 || !S_ISREG(about.st_mode)) file_.reset();
  // Of an implausibly large file, only its end.
  if (file_ && about.st_size - offset_ > kMostBytes) offset_ = about.st_size - kMostBytes;
  read_ = offset_;
  char before = '\n';
  if (file_ && offset_ > 0 && ::pread(file_.get(), &before, 1, offset_ - 1) == 1) {
    in_partial_line_ = before != '\n';
  }
}

std::optional<std::string_view> Lines::next() {
  bool too_long = false;
  for (;;) {
    const std::string_view rest(piece_.data() + begin_, end_ - begin_);
    const auto length = rest.find('\n');
    if (length != std::string_view::npos) {
      offset_ += static_cast<off_t>(length + 1) + std::exchange(hole_, 0);
      begin_ += length + 1;
      if (std::exchange(in_partial_line_, false)) {
        too_long = false;
        continue;
      }
      return too_long ? std::string_view("too long") : rest.substr(0, length);
    }
    if (rest.size() > kLongestLine) {
      too_long = true;
      offset_ += static_cast<off_t>(rest.size()) + std::exchange(hole_, 0);
      begin_ = end_;
    }
    if (!more()) return std::nullopt;
  }
}

// Passes over a hole; gives how much of what follows it can be read at once. 0 at the end.
std::size_t Lines::data_ahead() {
  if (!file_) return 0;
  const off_t data = ::lseek(file_.get(), read_, SEEK_DATA);
  if (data < 0) return errno == ENXIO ? 0 : kPiece;  // ENXIO: there is no more
  hole_ += data - std::exchange(read_, data);
  const off_t end = ::lseek(file_.get(), read_, SEEK_HOLE);
  return end <= read_ ? kPiece : std::min(kPiece, static_cast<std::size_t>(end - read_));
}

// The beginning of a line goes to the front, and behind it what comes next.
bool Lines::more() {
  std::copy(piece_.data() + begin_, piece_.data() + end_, piece_.data());
  end_ -= begin_;
  begin_ = 0;
  if (piece_.size() - end_ < kPiece) piece_.resize(end_ + kPiece);
  const std::size_t ahead = data_ahead();
  ssize_t got = ahead > 0 ? -1 : 0;
  while (ahead > 0 && got < 0) {
    got = ::pread(file_.get(), piece_.data() + end_, ahead, read_);
    if (got < 0 && errno != EINTR) break;
  }
  if (got <= 0) return false;
  read_ += got;
  end_ += static_cast<std::size_t>(got);
  return true;
}

}  // namespace berth
