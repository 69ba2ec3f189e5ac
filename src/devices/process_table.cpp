// Reads /proc/PID/status, environ and maps; see process_table.h.
#include "devices/process_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fcntl.h>
#include <fmt/format.h>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/mutex.h"
#include "base/pid_namespace.h"
#include "base/process.h"
#include "base/unique_fd.h"

namespace berth {
namespace {

constexpr std::size_t kLongestLineage = 64;
constexpr std::size_t kLargestEnvironment = 256 << 10;
constexpr std::size_t kLargestMaps = 4 << 20;

// A process that uses so much of a GPU's memory may have taken it without need.
constexpr double kMostOfMemory = 0.7;

struct Framework {
  std::string_view library;  // a part of the path of what its processes have loaded
  const char* name;
};
constexpr std::array kFrameworks{Framework{"/jaxlib/", "JAX"},
                                 Framework{"/tensorflow/", "TensorFlow"}};

bool has_host_pids() {
  static const bool known = in_host_pid_namespace();
  return known;
}

// What follows `key` on its line, without the leading blank.
std::optional<std::string_view> field(std::string_view status, std::string_view key) {
  const auto start = status.find(key);
  if (start == std::string_view::npos) return std::nullopt;
  status.remove_prefix(start + key.size());
  return status.substr(0, status.find('\n'));
}

// The kernel writes a newline in a name as \n, and a backslash as two.
std::string unescaped(std::string_view name) {
  std::string out;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '\\' && i + 1 < name.size()) {
      ++i;
      out += name[i] == 'n' ? '\n' : name[i];
    } else {
      out += name[i];
    }
  }
  return out;
}

// The numbers of a line such as "1000\t1000\t0\t1000".
template <std::size_t N>
std::optional<std::array<uid_t, N>> numbers(std::string_view text) {
  std::array<uid_t, N> values{};
  for (uid_t& value : values) {
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.starts_with('\t')) text.remove_prefix(1);
  }
  return values;
}

// The beginning of a file in /proc/PID; nothing if it cannot be read.
std::optional<std::string> read_start(std::int64_t pid, const char* file, std::size_t most) {
  const UniqueFd fd(::open(fmt::format("/proc/{}/{}", pid, file).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return std::nullopt;
  std::string text;
  std::array<char, 16384> buffer{};
  while (text.size() < most) {
    const auto got = TEMP_FAILURE_RETRY(::read(fd.get(), buffer.data(), buffer.size()));
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return text;
}

std::optional<std::string> lease_in_environment(std::int64_t pid) {
  constexpr std::string_view kName = "BERTH_LEASE=";
  constexpr std::size_t kLongestId = 64;
  const auto environment = read_start(pid, "environ", kLargestEnvironment);
  if (!environment) return std::nullopt;
  std::string_view rest = *environment;
  const bool was_cut = environment->size() >= kLargestEnvironment;
  if (was_cut) rest = rest.substr(0, rest.rfind('\0') + 1);  // without the entry that was cut
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    if (entry.starts_with(kName)) return std::string(entry.substr(kName.size(), kLongestId));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
  }
  // The part that was not read may have the variable.
  return was_cut ? std::nullopt : std::optional<std::string>("");
}

std::string loaded_framework(std::int64_t pid) {
  const std::string maps = read_start(pid, "maps", kLargestMaps).value_or("");
  for (const Framework& framework : kFrameworks) {
    if (maps.find(framework.library) != std::string::npos) return framework.name;
  }
  return "";
}

ProcessMemoryReader::Found read_process(const ProcessMemoryReader::Wanted& wanted) {
  return {lease_in_environment(wanted.pid), wanted.framework ? loaded_framework(wanted.pid) : ""};
}

bool uses_most(const GpuProcess& process, const GpuUse& use) {
  const auto memory = process.memory ? process.memory : use.memory_used;
  return memory && use.memory_total &&
         static_cast<double>(memory->count) >=
             kMostOfMemory * static_cast<double>(use.memory_total->count);
}

}  // namespace

std::optional<ProcessIdentity> identify_process(std::int64_t pid) {
  if (!has_host_pids() || pid <= 0) return std::nullopt;
  const UniqueFd file(::open(fmt::format("/proc/{}/status", pid).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::array<char, 1024> buffer{};  // Name is its first line, Uid its ninth
  const auto length = ::read(file.get(), buffer.data(), buffer.size());
  if (length <= 0) return std::nullopt;
  const std::string_view status(buffer.data(), static_cast<std::size_t>(length));
  const auto name = field(status, "Name:\t");
  const auto parent = field(status, "\nPPid:\t");
  const auto uid_line = field(status, "\nUid:\t");
  if (!name || !parent || !uid_line) return std::nullopt;
  const auto uids = numbers<3>(*uid_line);  // real, effective, saved
  const auto ppid = numbers<1>(*parent);
  if (!uids || !ppid) return std::nullopt;
  const bool is_root = std::count(uids->begin(), uids->end(), 0U) == 3;
  return ProcessIdentity{(*uids)[0], (*uids)[1], is_root, unescaped(*name),
                         static_cast<pid_t>((*ppid)[0])};
}

const std::optional<ProcessIdentity>& ProcessTable::look_up(std::int64_t pid) {
  const auto known = known_.find(pid);
  return known != known_.end() ? known->second
                               : known_.emplace(pid, identify_process(pid)).first->second;
}

bool ProcessTable::identify(GpuProcess& process) {
  if (!has_host_pids()) return false;
  const auto& identity = look_up(process.pid);
  if (identity) {
    process.uid = identity->uid;
    process.name = identity->name;
  }
  for (std::int64_t pid = process.pid; pid > 1 && process.lineage.size() < kLongestLineage;) {
    const auto& ancestor = look_up(pid);
    if (!ancestor) {
      // With hidepid the owner of /proc/PID is all that other users see.
      const auto owner = process_owner(static_cast<pid_t>(pid));
      if (owner) process.lineage.push_back({pid, owner, "", false});
      break;
    }
    process.lineage.push_back({pid, ancestor->effective_uid, ancestor->name, ancestor->is_root});
    pid = ancestor->parent;
  }
  return identity.has_value();
}

// What one thread reads. It outlives the reader if the thread is stuck.
struct ProcessMemoryReader::Reading {
  Read read;
  std::vector<Wanted> wanted;
  Mutex mutex;
  Condition more;
  // Of the first of `wanted`; the thread is at the next one.
  std::vector<Found> found GUARDED_BY(mutex);
  bool abandoned GUARDED_BY(mutex) = false;
  bool ended GUARDED_BY(mutex) = false;

  void run() {
    for (const Wanted& one : wanted) {
      Found result = read(one);
      const MutexLock lock(mutex);
      found.push_back(std::move(result));
      more.notify_all();
      if (abandoned) break;
    }
    const MutexLock lock(mutex);
    ended = true;
  }

  // Waits until more than `have` are found; false if that takes longer than `patience`.
  bool advances(std::size_t have, std::chrono::milliseconds patience) REQUIRES(mutex) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (found.size() <= have) {
      if (!more.wait_until(mutex, until)) return found.size() > have;
    }
    return true;
  }
};

ProcessMemoryReader::ProcessMemoryReader(std::chrono::milliseconds patience, Read read)
    : patience_(patience), read_(read ? std::move(read) : Read(read_process)) {}

bool ProcessMemoryReader::is_stuck(std::int64_t pid) const {
  return std::any_of(stuck_.begin(), stuck_.end(), [&](const auto& reading) {
    const MutexLock lock(reading->mutex);
    return reading->found.size() < reading->wanted.size() &&
           reading->wanted[reading->found.size()].pid == pid;
  });
}

void ProcessMemoryReader::read(std::map<std::int64_t, Found>& found, std::vector<Wanted> wanted) {
  std::erase_if(stuck_, [](const auto& reading) {
    const MutexLock lock(reading->mutex);
    return reading->ended;
  });
  std::erase_if(wanted, [&](const Wanted& one) { return is_stuck(one.pid); });
  while (!wanted.empty() && stuck_.size() < kMostStuck) {
    const auto reading = std::make_shared<Reading>();
    reading->read = read_;
    reading->wanted = wanted;
    try {
      std::thread([reading] { reading->run(); }).detach();
    } catch (const std::system_error&) {
      return;  // no thread can be started (ulimit -u): the leases stay unknown
    }
    const MutexLock lock(reading->mutex);
    std::size_t have = 0;
    while (have < wanted.size() && reading->advances(have, patience_)) {
      have = reading->found.size();
    }
    for (std::size_t i = 0; i < have; ++i) found[wanted[i].pid] = reading->found[i];
    if (have == wanted.size()) return;
    reading->abandoned = true;
    stuck_.push_back(reading);
    wanted.erase(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(have) + 1);
  }
}

void ProcessMemoryReader::fill(std::vector<Gpu>& gpus) {
  std::set<std::int64_t> pids;
  for (const Gpu& gpu : gpus) {
    for (const GpuProcess& process : gpu.processes) {
      if (!process.lineage.empty()) pids.insert(process.pid);
    }
  }
  std::vector<Wanted> wanted;
  for (const std::int64_t pid : pids) wanted.push_back({pid, false});
  std::map<std::int64_t, Found> found;
  read(found, std::move(wanted));
  for (Gpu& gpu : gpus) {
    for (GpuProcess& process : gpu.processes) process.lease = found[process.pid].lease;
  }
}

void ProcessMemoryReader::fill(std::vector<GpuUse>& uses) {
  std::map<std::int64_t, bool> pids;  // whether to look for a framework
  for (const GpuUse& use : uses) {
    for (const GpuProcess& process : use.processes) {
      if (process.lineage.empty()) continue;
      bool& framework = pids[process.pid];
      framework = framework || (uses_most(process, use) && !frameworks_.contains(process.pid));
    }
  }
  std::erase_if(frameworks_, [&](const auto& one) { return !pids.contains(one.first); });
  std::vector<Wanted> wanted;
  for (const auto& [pid, framework] : pids) wanted.push_back({pid, framework});
  std::map<std::int64_t, Found> found;
  read(found, std::move(wanted));
  for (const auto& [pid, result] : found) {
    if (pids[pid]) frameworks_[pid] = result.framework;
  }
  for (GpuUse& use : uses) {
    for (GpuProcess& process : use.processes) {
      process.lease = found[process.pid].lease;
      if (const auto known = frameworks_.find(process.pid); known != frameworks_.end()) {
        process.framework = known->second;
      }
    }
  }
}

}  // namespace berth
