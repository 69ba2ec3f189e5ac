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
constexpr std::size_t kPiece = 1 << 20;
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
    const auto end = std::string_view(piece_).find('\n', begin_);
    if (end != std::string_view::npos) {
      const std::string_view line = std::string_view(piece_).substr(begin_, end - begin_);
      offset_ += static_cast<off_t>(line.size() + 1);
      begin_ = end + 1;
      return too_long ? std::string_view("too long") : line;
    }
    if (piece_.size() - begin_ > kLongestLine) {
      too_long = true;
      offset_ += static_cast<off_t>(piece_.size() - begin_);
      begin_ = piece_.size();
    }
    if (!more()) return std::nullopt;
  }
}

bool Lines::more() {
  piece_.erase(0, begin_);
  begin_ = 0;
  const std::size_t have = piece_.size();
  piece_.resize(have + kPiece);
  ssize_t got = -1;
  do {
    got = file_ ? ::pread(file_.get(), piece_.data() + have, kPiece, read_) : 0;
  } while (got < 0 && errno == EINTR);
  piece_.resize(have + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  read_ += std::max<ssize_t>(got, 0);
  return got > 0;
}

}  // namespace berth
