// Searches the open files of all processes for a bell; see bell_holders.h.
#include "lease/bell_holders.h"

#include <algorithm>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <memory>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/process.h"
#include "harbour/file_names.h"
#include "harbour/location.h"
#include "harbour/safe_directory.h"

namespace berth {
namespace {

// A process with only the writing end watches the lease; it does not hold it.
bool is_open_for_reading(const std::string& fdinfo) {
  std::ifstream file(fdinfo);
  std::string word;
  while (file >> word) {
    unsigned flags = 0;
    if (word == "flags:" && file >> std::oct >> flags) return (flags & O_ACCMODE) != O_WRONLY;
  }
  return false;
}

// Sends no request to the server of a network or FUSE file system, which may never answer: another
// user can have such a file open.
bool stat_without_request(int folder, const char* name, struct stat& file) {
  struct statx info {};
  if (::statx(folder, name, AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &info) != 0) return false;
  file.st_mode = info.stx_mode;
  file.st_ino = info.stx_ino;
  file.st_dev = makedev(info.stx_dev_major, info.stx_dev_minor);
  return true;
}

// A job inherits its bell, so the bell has a low descriptor. A process with more open files than
// this could make the search of root endless.
constexpr int kMaxDescriptors = 4096;

// Calls `visit` for each FIFO that the process has open, until it returns false.
template <class Visit>
void for_each_open_fifo(pid_t pid, Visit visit) {
  const std::string process = fmt::format("/proc/{}", pid);
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir((process + "/fd").c_str()),
                                                   ::closedir);
  if (!folder) return;
  for (int left = kMaxDescriptors; left > 0; --left) {
    const dirent* const entry = ::readdir(folder.get());
    if (entry == nullptr) return;
    struct stat file {};
    if (!stat_without_request(::dirfd(folder.get()), entry->d_name, file) ||
        !S_ISFIFO(file.st_mode))
      continue;
    const auto is_read = [&] {
      return is_open_for_reading(fmt::format("{}/fdinfo/{}", process, entry->d_name));
    };
    if (!visit(file, is_read)) return;
  }
}

bool has_file_open(pid_t pid, const struct stat& file) {
  bool found = false;
  for_each_open_fifo(pid, [&](const struct stat& one, const auto& is_read) {
    found = is_same_file(one, file) && is_read();
    return !found;
  });
  return found;
}

bool stat_bell(const Record& record, struct stat& bell) {
  const std::string path = fmt::format("{}/{}", harbour_location().path, bell_file_name(record.id));
  // Its owner can replace it by a link to a file that every process has open, such as /dev/null.
  return ::lstat(path.c_str(), &bell) == 0 && S_ISFIFO(bell.st_mode) && bell.st_uid == record.uid;
}

}  // namespace

std::size_t BellSearch::add(const Record& record) {
  Bell bell{count_++, {}};
  if (record.pid_namespace == pid_namespace() && stat_bell(record, bell.file))
    bells_.push_back(bell);
  return bell.number;
}

std::vector<std::size_t> BellSearch::held_by(pid_t pid) const {
  std::vector<std::size_t> held;
  if (bells_.empty()) return held;
  for_each_open_fifo(pid, [&](const struct stat& one, const auto& is_read) {
    for (const Bell& bell : bells_) {
      const bool is_new = std::find(held.begin(), held.end(), bell.number) == held.end();
      if (is_same_file(one, bell.file) && is_new && is_read()) held.push_back(bell.number);
    }
    return held.size() < bells_.size();
  });
  return held;
}

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
