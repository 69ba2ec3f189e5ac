// Searches the open files of all processes for a bell; see bell_holders.h.
#include "lease/bell_holders.h"

#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sys/stat.h>

#include "base/process.h"
#include "harbour/file_names.h"
#include "harbour/location.h"
#include "harbour/safe_directory.h"

namespace berth {
namespace {

namespace fs = std::filesystem;

// A process with only the writing end watches the lease; it does not hold it.
bool is_open_for_reading(const fs::path& fdinfo) {
  std::ifstream file(fdinfo);
  std::string word;
  while (file >> word) {
    unsigned flags = 0;
    if (word == "flags:" && file >> std::oct >> flags) return (flags & O_ACCMODE) != O_WRONLY;
  }
  return false;
}

bool has_file_open(pid_t pid, const struct stat& file) {
  const fs::path process = fmt::format("/proc/{}", pid);
  std::error_code problem;
  // With error codes: a process that ends during the iteration must not raise an exception.
  fs::directory_iterator entry(process / "fd", problem);
  for (; !problem && entry != fs::directory_iterator(); entry.increment(problem)) {
    struct stat entry_stat {};
    if (::stat(entry->path().c_str(), &entry_stat) == 0 && is_same_file(entry_stat, file) &&
        is_open_for_reading(process / "fdinfo" / entry->path().filename())) {
      return true;
    }
  }
  return false;
}

bool stat_bell(const Record& record, struct stat& bell) {
  const std::string path = fmt::format("{}/{}", harbour_location().path, bell_file_name(record.id));
  // Its owner can replace it by a link to a file that every process has open, such as /dev/null.
  return ::lstat(path.c_str(), &bell) == 0 && S_ISFIFO(bell.st_mode) && bell.st_uid == record.uid;
}

}  // namespace

bool holds_bell(const Record& record, pid_t pid) {
  struct stat bell {};
  return record.pid_namespace == pid_namespace() && stat_bell(record, bell) &&
         has_file_open(pid, bell);
}

std::string format_bell_holders(const Record& record) {
  struct stat bell {};
  if (!stat_bell(record, bell)) return "";
  std::string holders;
  for (const pid_t pid : list_processes()) {
    if (!has_file_open(pid, bell)) continue;
    std::string name;
    std::ifstream comm(fmt::format("/proc/{}/comm", pid));
    std::getline(comm, name);
    if (!holders.empty()) holders += ", ";
    holders += fmt::format("{} (pid {})", name, pid);
  }
  return holders;
}

}  // namespace berth
