// Finds the holder of a lock in /proc/locks and /proc/PID/fdinfo; see lock_holder.h.
#include "harbour/lock_holder.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <string_view>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <thread>
#include <vector>

#include "base/process.h"
#include "base/text.h"
#include "base/users.h"

namespace berth {
namespace {

namespace fs = std::filesystem;

// A line of /proc/locks: "1: FLOCK  ADVISORY  WRITE 4711 08:02:1234 0 EOF". The PID is 0 if the
// process has exited, or is not in this PID namespace.
struct LockLine {
  std::string kind;
  pid_t pid = 0;
  std::string file;
};

LockLine parse_lock(const std::string& text) {
  LockLine line;
  std::istringstream words(text);
  std::string skipped;
  words >> skipped >> line.kind >> skipped >> skipped >> line.pid >> line.file;
  return line;
}

// The processes that took a lock on the file.
std::vector<pid_t> find_lock_pids(const std::string& file) {
  std::vector<pid_t> pids;
  std::ifstream locks("/proc/locks");
  for (std::string text; std::getline(locks, text);) {
    // A "->" marks a process that waits for the lock. There may be a thousand of them.
    if (text.find("->") != std::string::npos) continue;
    const LockLine line = parse_lock(text);
    if (line.kind == "FLOCK" && line.file == file && line.pid > 0) pids.push_back(line.pid);
  }
  return pids;
}

// The processes that have kept a lock on the file during some looks at it. nullopt if different
// processes had it: they take it in turn.
std::optional<std::vector<pid_t>> find_steady_lock_pids(const std::string& file) {
  constexpr int kMoreLooks = 5;
  constexpr std::chrono::milliseconds kPause(50);
  std::vector<pid_t> steady = find_lock_pids(file);
  bool seen = !steady.empty();
  for (int i = 0; i < kMoreLooks; ++i) {
    std::this_thread::sleep_for(kPause);
    const std::vector<pid_t> now = find_lock_pids(file);
    seen = seen || !now.empty();
    std::erase_if(
        steady, [&now](pid_t pid) { return std::find(now.begin(), now.end(), pid) == now.end(); });
    if (seen && steady.empty()) return std::nullopt;
  }
  return steady;
}

enum class LockCheck { yes, no, unknown };

// Does the process have the locked open file? Unknown for processes of other users, unless this
// process is root.
LockCheck check_lock(pid_t pid, const std::string& file) {
  constexpr std::string_view kLock = "lock:";
  std::error_code problem;
  fs::directory_iterator entry(fmt::format("/proc/{}/fdinfo", pid), problem);
  if (problem)
    return problem == std::errc::no_such_file_or_directory ? LockCheck::no : LockCheck::unknown;
  for (; entry != fs::directory_iterator(); entry.increment(problem)) {
    std::ifstream info(entry->path());
    for (std::string text; std::getline(info, text);) {
      if (!text.starts_with(kLock)) continue;
      const LockLine line = parse_lock(text.substr(kLock.size()));
      if (line.kind == "FLOCK" && line.file == file) return LockCheck::yes;
    }
  }
  return problem ? LockCheck::unknown : LockCheck::no;
}

bool is_process_stopped(pid_t pid) {
  const auto stat = read_process_stat(pid);
  return stat && stat->stopped;
}

std::string describe_process(pid_t pid) {
  const auto stat = read_process_stat(pid);
  // Not the owner of its files in /proc, which is root if the process has cleared PR_SET_DUMPABLE.
  const auto owner = read_process_owner(pid);
  return fmt::format("{} (pid {}{})", stat ? printable(stat->name) : "a process", pid,
                     owner ? fmt::format(", user {}", user_name(*owner)) : "");
}

}  // namespace

LockHolder find_lock_holder(int directory) {
  constexpr const char* kInvisibleProcess = "a process that is not visible here";
  struct stat file_info {};
  if (::fstat(directory, &file_info) != 0) return {kInvisibleProcess, std::nullopt};
  const std::string file = fmt::format("{:02x}:{:02x}:{}", major(file_info.st_dev),
                                       minor(file_info.st_dev), file_info.st_ino);
  // The search below reads the descriptors of every process. If a thousand clients that wait in
  // line did that, the line would hardly move.
  const auto lock_pids = find_steady_lock_pids(file);
  if (!lock_pids) return {"other clients in turn", std::nullopt, true};
  std::vector<pid_t> holders;
  std::vector<pid_t> unverified;
  for (const pid_t pid : *lock_pids) {
    const LockCheck check = check_lock(pid, file);
    if (check == LockCheck::yes) holders.push_back(pid);
    if (check == LockCheck::unknown) unverified.push_back(pid);
  }
  if (holders.empty()) {
    for (const pid_t pid : list_processes()) {
      if (check_lock(pid, file) == LockCheck::yes) holders.push_back(pid);
    }
  }
  if (!holders.empty()) {
    // Several processes may have a shared lock, or share an open file. A stopped one is the likely
    // cause of the wait.
    const auto stopped = std::find_if(holders.begin(), holders.end(), is_process_stopped);
    const pid_t pid = stopped == holders.end() ? holders.front() : *stopped;
    return {describe_process(pid), pid};
  }
  if (unverified.empty()) return {kInvisibleProcess, std::nullopt};
  return {fmt::format("an unknown process, perhaps {}", describe_process(unverified.front())),
          std::nullopt};
}

}  // namespace berth
