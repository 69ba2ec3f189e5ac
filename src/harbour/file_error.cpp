// Error messages for errno; see file_error.h.
#include "harbour/file_error.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <string>
#include <unistd.h>

#include "base/text.h"
#include "harbour/location.h"
#include "harbour/setup.h"

namespace berth {
namespace {

std::string remedy(int reason) {
  switch (reason) {
    case ENOSPC:
    case EDQUOT:
      return "free some space there, or set BERTH_DIR to another folder (the same for all users)";
    case EROFS:
      return "set BERTH_DIR to a writable folder (the same for all users)";
    case EACCES:
    case EPERM:
      return fmt::format("run: {} (sets owner and mode)", setup_command(harbour_location()));
    case EMFILE:
      return "raise the limit of open files (ulimit -n)";
    case ENFILE:
      return "this host has reached its limit of open files (sysctl fs.file-max)";
    case ENOENT:
      return "try again (another process has deleted it)";
    default:
      return "see 'berth doctor'";
  }
}

}  // namespace

bool is_caused_by_owner(int reason) {
  switch (reason) {
    case EACCES:
    case EPERM:  // an append-only file
    case ELOOP:  // a symbolic link
    case EISDIR:
    case ENXIO:  // a socket
    case ENODEV:
    case ETXTBSY:  // a running program
    case EAGAIN:   // F_SETLEASE
    case EXDEV:    // a mount point (FUSE)
      return true;
    default:
      return false;
  }
}

tl::unexpected<Error> file_error(std::string_view what, std::string_view path) {
  const int reason = errno;
  return fail(ErrorKind::io, fmt::format("cannot {} {}: {}; {}", what, in_quotes(path),
                                         std::strerror(reason), remedy(reason)));
}

tl::unexpected<Error> file_error(std::string_view what, int directory) {
  const int reason = errno;
  std::array<char, 4096> path{};
  const auto length =
      ::readlink(fmt::format("/proc/self/fd/{}", directory).c_str(), path.data(), path.size());
  const std::string_view name =
      length > 0 ? std::string_view(path.data(), static_cast<std::size_t>(length))
                 : std::string_view("the harbour");
  errno = reason;
  return file_error(what, name);
}

}  // namespace berth
