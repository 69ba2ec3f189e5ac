// Reads and writes the file in the archive; see load_file.h.
#include "serve/load_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "archive/user_folder.h"
#include "base/read_file.h"

namespace berth::serve {
namespace {

constexpr const char* kFileName = "gpu-load.json";
constexpr std::size_t kMaxFileBytes = std::size_t{16} << 20;  // a thousand GPUs need about 5 MiB

}  // namespace

std::string read_load_file(const HarbourLocation& where) {
  const auto folder = find_own_folder(archive_path(where));
  if (!folder) return "";
  const UniqueFd file = open_inside(folder->directory.get(), kFileName, O_RDONLY | O_NONBLOCK);
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return "";
  return read_to_end(file.get(), kMaxFileBytes).value_or("");
}

void write_load_file(const HarbourLocation& where, const std::string& text) {
  const auto folder = open_own_folder(archive_path(where));
  if (!folder) return;
  if (const auto lock = lock_folder(*folder)) (void)replace_file(*folder, kFileName, text);
}

}  // namespace berth::serve
