// Looking for a bell among the open files of all processes; see holders.h.
#include "broker/holders.h"

#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sys/stat.h>

#include "harbour/bell.h"
#include "harbour/location.h"

namespace berth {
namespace {

namespace fs = std::filesystem;

// Who has only the writing end waits for the lease to end.
bool opened_for_reading(const fs::path& fdinfo) {
  std::ifstream file(fdinfo);
  std::string word;
  while (file >> word) {
    unsigned flags = 0;
    if (word == "flags:" && file >> std::oct >> flags) return (flags & O_ACCMODE) != O_WRONLY;
  }
  return false;
}

bool has_open(const fs::path& process, const struct stat& file) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(process / "fd", ignored)) {
    struct stat about {};
    if (::stat(entry.path().c_str(), &about) == 0 && about.st_dev == file.st_dev &&
        about.st_ino == file.st_ino &&
        opened_for_reading(process / "fdinfo" / entry.path().filename())) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string bell_holders(const Record& record) {
  struct stat bell {};
  const std::string path = fmt::format("{}/{}", harbour_location().path, bell_name(record.id));
  if (::stat(path.c_str(), &bell) != 0) return "";
  std::string holders;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!has_open(entry.path(), bell)) continue;
    std::string name;
    std::ifstream comm(entry.path() / "comm");
    std::getline(comm, name);
    if (!holders.empty()) holders += ", ";
    holders += fmt::format("{} (pid {})", name, pid);
  }
  return holders;
}

}  // namespace berth
