// Reading of a job's output; see last_words.h.
#include "run/output_tail.h"

#include <algorithm>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace berth {
namespace {

constexpr off_t kMost = 16 << 10;

off_t size_of(int fd) {
  struct stat about {};
  return ::fstat(fd, &about) == 0 && S_ISREG(about.st_mode) ? about.st_size : -1;
}

}  // namespace

OutputTail::OutputTail() {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (const off_t size = size_of(fd); size >= 0) outputs_.push_back({fd, size});
  }
}

bool OutputTail::known() const {
  return std::any_of(outputs_.begin(), outputs_.end(),
                     [](const Output& output) { return output.fd == STDERR_FILENO; });
}

std::string OutputTail::read() const {
  std::string words;
  for (const Output& output : outputs_) {
    const off_t size = size_of(output.fd);
    const off_t begin = std::max(size < output.begin ? 0 : output.begin, size - kMost);
    // Anew: it was opened for writing.
    const UniqueFd file(
        ::open(fmt::format("/proc/self/fd/{}", output.fd).c_str(), O_RDONLY | O_CLOEXEC));
    if (!file || size <= begin) continue;
    std::string part(static_cast<std::size_t>(size - begin), '\0');
    const auto got = ::pread(file.get(), part.data(), part.size(), begin);
    part.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    words += part;
  }
  return words;
}

}  // namespace berth
