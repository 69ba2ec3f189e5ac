// Fuzzes the configuration: /etc/berth.toml, and the file of a user.
#include <cstdlib>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/configuration.h"
#include "fuzz/fuzz.h"

namespace berth {
namespace {

// A file in memory, which read_configuration() opens by its name in /proc.
int make_file() {
  const int file = ::memfd_create("berth.toml", MFD_CLOEXEC);
  ::fchmod(file, 0600);
  ::setenv("BERTH_SITE_FILE", ("/proc/self/fd/" + std::to_string(file)).c_str(), 1);
  for (const char* name : {"BERTH_URL", "BERTH_HOST", "HOME", "XDG_CONFIG_HOME"}) ::unsetenv(name);
  return file;
}

}  // namespace

void fuzz(std::string_view input) {
  static const int file = make_file();
  check(::ftruncate(file, 0) == 0, "the file can be emptied");
  check(::pwrite(file, input.data(), input.size(), 0) == static_cast<ssize_t>(input.size()),
        "the file can be written");
  const auto found = read_configuration();
  if (found) {
    check(is_host_name(found->host), "the host has a valid name");
  } else {
    check(is_printable(found.error().message), "the error is printable");
    check(found.error().message.size() < 1000, "the error is short");
  }
}

}  // namespace berth
