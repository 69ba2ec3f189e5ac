// Reads /proc and uses pidfds; see process.h.
#include "base/process.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string_view>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/read_file.h"
#include "base/text.h"

namespace berth {
namespace {

// PF_FORKNOEXEC of the kernel's flags: fork sets it and exec clears it. The value is stable,
// because ps(1) shows it in its column F ("forked but didn't exec").
constexpr unsigned kForkedWithoutExec = 0x40;

// The kernel's fixed inode number of the initial PID namespace (PROC_PID_INIT_INO).
constexpr std::uint64_t kHostPidNamespace = 4026531836;

// The number at the start of field `skip` (from 0) of `text`.
template <class T>
std::optional<T> parse_number_field(std::string_view text, int skip) {
  for (; skip > 0; --skip) {
    const auto blank = text.find(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    text.remove_prefix(blank + 1);
  }
  T value{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{}) return std::nullopt;
  return value;
}

// The value of an option in a list such as "rw,relatime,hidepid=invisible"; empty: not in the list.
std::string find_mount_option(std::string_view options, std::string_view name) {
  while (!options.empty()) {
    const std::string_view one = options.substr(0, options.find(','));
    if (one.starts_with(name) && one.substr(name.size()).starts_with('=')) {
      return std::string(one.substr(name.size() + 1));
    }
    options.remove_prefix(std::min(options.size(), one.size() + 1));
  }
  return "";
}

}  // namespace

std::optional<ProcessStat> read_process_stat(pid_t pid) {
  const UniqueFd file(::open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::array<char, 1024> buffer{};
  const auto length = ::read(file.get(), buffer.data(), buffer.size());
  if (length <= 0) return std::nullopt;
  const std::string_view line(buffer.data(), static_cast<std::size_t>(length));
  // "PID (name) state parent group session terminal foreground flags ...": the name may contain
  // blanks and brackets; no later field does.
  const auto open = line.find('(');
  const auto close = line.rfind(") ");
  if (open == std::string_view::npos || close == std::string_view::npos) return std::nullopt;
  const auto rest = line.substr(close + 2);
  const auto parent = parse_number_field<pid_t>(rest, 1);
  const auto group = parse_number_field<pid_t>(rest, 2);
  const auto session = parse_number_field<pid_t>(rest, 3);
  const auto flags = parse_number_field<unsigned>(rest, 6);
  const auto start_ticks = parse_number_field<std::uint64_t>(rest, 19);
  if (!parent || !group || !session || !flags || !start_ticks) return std::nullopt;
  // Not 't', the state of a running process that a tracer (strace) stops at each system call.
  const bool stopped = rest.starts_with('T');
  return ProcessStat{std::string(line.substr(open + 1, close - open - 1)),
                     *parent,
                     *group,
                     *session,
                     stopped,
                     (*flags & kForkedWithoutExec) == 0,
                     *start_ticks};
}

std::optional<uid_t> read_process_owner(pid_t pid) {
  struct stat info {};
  if (::stat(fmt::format("/proc/{}", pid).c_str(), &info) != 0) return std::nullopt;
  return info.st_uid;
}

UniqueFd open_process(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

bool has_ended(const UniqueFd& handle) {
  pollfd entry{handle.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

int send_signal(const UniqueFd& handle, int number) {
  return static_cast<int>(
      ::syscall(SYS_pidfd_send_signal, handle.get(), number, static_cast<siginfo_t*>(nullptr), 0U));
}

std::string read_hidepid_option() {
  const std::string mounts = read_proc_file("/proc/self/mountinfo").value_or("");
  std::string found;
  // If several file systems are mounted at /proc, the last one is visible.
  for (std::string_view rest = mounts; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.find(" /proc ") == std::string_view::npos) continue;
    std::string_view word;
    for (int i = 0; i < 5; ++i) word = take_word(line);
    if (word != "/proc") continue;
    while (!word.empty() && word != "-") word = take_word(line);
    const std::string_view type = take_word(line);
    take_word(line);  // the source
    found = type == "proc" ? find_mount_option(take_word(line), "hidepid") : "";
  }
  return found == "0" || found == "off" ? "" : found;
}

std::uint64_t pid_namespace() {
  // The namespace of a process never changes. A forked child may be in another one, but then its
  // PID differs, too.
  thread_local pid_t cached_pid = 0;
  thread_local std::uint64_t cached_namespace = 0;
  if (const pid_t pid = ::getpid(); pid != cached_pid) {
    struct stat info {};
    cached_namespace = ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
    cached_pid = pid;
  }
  return cached_namespace;
}

bool is_in_host_pid_namespace() {
  return pid_namespace() == kHostPidNamespace;
}

std::vector<pid_t> list_processes() {
  namespace fs = std::filesystem;
  std::vector<pid_t> pids;
  std::error_code problem;
  fs::directory_iterator entry("/proc", problem);
  for (; !problem && entry != fs::directory_iterator(); entry.increment(problem)) {
    if (const auto pid = parse_integer<pid_t>(entry->path().filename().native()))
      pids.push_back(*pid);
  }
  return pids;
}

std::string executable_path() {
  std::array<char, 4096> path{};
  const auto length = ::readlink("/proc/self/exe", path.data(), path.size());
  return {path.data(), length > 0 ? static_cast<std::size_t>(length) : 0};
}

std::vector<char*> exec_pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace berth
