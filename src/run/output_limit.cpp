// Makes a hole in the output of a detached job; see output_limit.h.
#include "run/output_limit.h"

#include <algorithm>
#include <fcntl.h>
#include <sys/stat.h>
#include <utility>

namespace berth {

std::chrono::milliseconds OutputLimit::apply() {
  constexpr std::chrono::milliseconds kSlowInterval(2'000);
  constexpr std::chrono::milliseconds kFastInterval(250);
  constexpr off_t kHoleUnit = 1 << 20;  // whole blocks of every file system
  struct stat info {};
  if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) return kSlowInterval;
  const auto limit = static_cast<off_t>(limit_.count);
  const auto beginning = static_cast<off_t>(kKeptBeginning.count);
  if (info.st_size < last_size_) hole_end_ = 0;  // the job has truncated the file
  const off_t grown = info.st_size - std::exchange(last_size_, info.st_size);
  const off_t begin = std::max(beginning, hole_end_);
  if (info.st_size - begin > limit + limit / 4) {
    const off_t end = (info.st_size - limit) / kHoleUnit * kHoleUnit;
    const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    if (end > begin && ::fallocate(fd_, mode, begin, end - begin) == 0) hole_end_ = end;
  }
  return grown > limit / 100 ? kFastInterval : kSlowInterval;
}

}  // namespace berth
