// Reads the end of a job's output from its files; see output_tail.h.
#include "run/output_tail.h"

#include <algorithm>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace berth {
namespace {

constexpr off_t kMaxTailBytes = 16 << 10;

off_t regular_file_size(int fd) {
  struct stat attributes {};
  return ::fstat(fd, &attributes) == 0 && S_ISREG(attributes.st_mode) ? attributes.st_size : -1;
}

}  // namespace

OutputTail::OutputTail() {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (const off_t size = regular_file_size(fd); size >= 0) outputs_.push_back({fd, size});
  }
}

bool OutputTail::has_stderr() const {
  return std::any_of(outputs_.begin(), outputs_.end(),
                     [](const OutputFile& output) { return output.fd == STDERR_FILENO; });
}

std::string OutputTail::read() const {
  std::string text;
  for (const OutputFile& output : outputs_) {
    const off_t size = regular_file_size(output.fd);
    const off_t begin = std::max(size < output.begin ? 0 : output.begin, size - kMaxTailBytes);
    // Open the file again: our descriptor is open for writing only.
    const UniqueFd file(
        ::open(fmt::format("/proc/self/fd/{}", output.fd).c_str(), O_RDONLY | O_CLOEXEC));
    if (!file || size <= begin) continue;
    std::string part(static_cast<std::size_t>(size - begin), '\0');
    const auto got = ::pread(file.get(), part.data(), part.size(), begin);
    part.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    text += part;
  }
  return text;
}

}  // namespace berth
