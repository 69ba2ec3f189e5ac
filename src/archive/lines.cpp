// Reading of lines; see lines.h.
#include "archive/lines.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace berth {
namespace {

constexpr std::size_t kLongestLine = 256 << 10;
constexpr std::size_t kPiece = 256 << 10;  // which the processor's cache holds
constexpr off_t kMostBytes = off_t{1} << 29;

}  // namespace

Lines::Lines(int directory, const std::string& name, off_t offset)
    : file_(::openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)),
      offset_(offset) {
  struct stat about {};
  if (!file_ || ::fstat(file_.get(), &about) != 0 || !S_ISREG(about.st_mode)) file_.reset();
  // Of more than anybody can have lived through, the end.
  if (file_ && about.st_size - offset_ > kMostBytes) offset_ = about.st_size - kMostBytes;
  read_ = offset_;
}

std::optional<std::string_view> Lines::next() {
  bool too_long = false;
  for (;;) {
    const std::string_view rest(piece_.data() + begin_, end_ - begin_);
    const auto length = rest.find('\n');
    if (length != std::string_view::npos) {
      offset_ += static_cast<off_t>(length + 1);
      begin_ += length + 1;
      return too_long ? std::string_view("too long") : rest.substr(0, length);
    }
    if (rest.size() > kLongestLine) {
      too_long = true;
      offset_ += static_cast<off_t>(rest.size());
      begin_ = end_;
    }
    if (!more()) return std::nullopt;
  }
}

// The beginning of a line goes to the front, and behind it what comes next.
bool Lines::more() {
  std::copy(piece_.data() + begin_, piece_.data() + end_, piece_.data());
  end_ -= begin_;
  begin_ = 0;
  if (piece_.size() - end_ < kPiece) piece_.resize(end_ + kPiece);
  ssize_t got = -1;
  do {
    got = file_ ? ::pread(file_.get(), piece_.data() + end_, kPiece, read_) : 0;
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return false;
  read_ += got;
  end_ += static_cast<std::size_t>(got);
  return true;
}

}  // namespace berth
