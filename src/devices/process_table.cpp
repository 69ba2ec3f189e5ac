// Reads the files status, environ and maps of /proc/PID; see process_table.h.
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
#include "base/process.h"
#include "base/unique_fd.h"

namespace berth {
namespace {

constexpr std::size_t kMaxLineage = 64;
constexpr std::size_t kMaxEnvironmentSize = 256 << 10;
constexpr std::size_t kMaxMapsSize = 4 << 20;

// A process that uses this share of a GPU's memory may have allocated it without need.
constexpr double kMostMemoryShare = 0.7;

struct Framework {
  std::string_view library;  // a part of the path of its loaded libraries
  const char* name;
};
constexpr std::array kFrameworks{Framework{"/jaxlib/", "JAX"},
                                 Framework{"/tensorflow/", "TensorFlow"}};

bool has_host_pids() {
  static const bool known = is_in_host_pid_namespace();
  return known;
}

// The text after `key` up to the end of its line.
std::optional<std::string_view> find_field(std::string_view status, std::string_view key) {
  const auto start = status.find(key);
  if (start == std::string_view::npos) return std::nullopt;
  status.remove_prefix(start + key.size());
  return status.substr(0, status.find('\n'));
}

// The kernel escapes a newline in a name as \n and a backslash as \\.
std::string unescape_name(std::string_view name) {
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
std::optional<std::array<uid_t, N>> parse_numbers(std::string_view text) {
  std::array<uid_t, N> values{};
  for (uid_t& value : values) {
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.starts_with('\t')) text.remove_prefix(1);
  }
  return values;
}

// The beginning of a file in /proc/PID; nullopt if it cannot be read.
std::optional<std::string> read_start(std::int64_t pid, const char* file, std::size_t max_size) {
  const UniqueFd fd(::open(fmt::format("/proc/{}/{}", pid, file).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return std::nullopt;
  std::string text;
  std::array<char, 16384> buffer{};
  while (text.size() < max_size) {
    const auto got = TEMP_FAILURE_RETRY(::read(fd.get(), buffer.data(), buffer.size()));
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return text;
}

std::optional<std::string> read_lease_variable(std::int64_t pid) {
  constexpr std::string_view kName = "BERTH_LEASE=";
  constexpr std::size_t kLongestId = 64;
  const auto environment = read_start(pid, "environ", kMaxEnvironmentSize);
  if (!environment) return std::nullopt;
  std::string_view rest = *environment;
  const bool was_cut = environment->size() >= kMaxEnvironmentSize;
  if (was_cut) rest = rest.substr(0, rest.rfind('\0') + 1);  // drop the truncated last entry
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    if (entry.starts_with(kName)) return std::string(entry.substr(kName.size(), kLongestId));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
  }
  // The part that was not read may contain the variable.
  return was_cut ? std::nullopt : std::optional<std::string>("");
}

std::string find_loaded_framework(std::int64_t pid) {
  const std::string maps = read_start(pid, "maps", kMaxMapsSize).value_or("");
  for (const Framework& framework : kFrameworks) {
    if (maps.find(framework.library) != std::string::npos) return framework.name;
  }
  return "";
}

ProcessMemoryReader::ProcessFacts read_process(const ProcessMemoryReader::ProcessQuery& query) {
  return {read_lease_variable(query.pid), query.framework ? find_loaded_framework(query.pid) : ""};
}

bool uses_most_memory(const GpuProcess& process, const GpuSample& sample) {
  const auto memory = process.memory ? process.memory : sample.memory_used;
  return memory && sample.memory_total &&
         static_cast<double>(memory->count) >=
             kMostMemoryShare * static_cast<double>(sample.memory_total->count);
}

}  // namespace

std::optional<ProcessIdentity> identify_process(std::int64_t pid) {
  if (!has_host_pids() || pid <= 0) return std::nullopt;
  const UniqueFd file(::open(fmt::format("/proc/{}/status", pid).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::array<char, 1024> buffer{};  // large enough: Name is the first line, Uid the ninth
  const auto length = ::read(file.get(), buffer.data(), buffer.size());
  if (length <= 0) return std::nullopt;
  const std::string_view status(buffer.data(), static_cast<std::size_t>(length));
  const auto name = find_field(status, "Name:\t");
  const auto parent = find_field(status, "\nPPid:\t");
  const auto uid_line = find_field(status, "\nUid:\t");
  if (!name || !parent || !uid_line) return std::nullopt;
  const auto uids = parse_numbers<3>(*uid_line);  // real, effective, saved
  const auto ppid = parse_numbers<1>(*parent);
  if (!uids || !ppid) return std::nullopt;
  const bool is_root = std::count(uids->begin(), uids->end(), 0U) == 3;
  return ProcessIdentity{(*uids)[0], (*uids)[1], is_root, unescape_name(*name),
                         static_cast<pid_t>((*ppid)[0])};
}

const std::optional<ProcessIdentity>& ProcessTable::look_up(std::int64_t pid) {
  const auto known = cache_.find(pid);
  return known != cache_.end() ? known->second
                               : cache_.emplace(pid, identify_process(pid)).first->second;
}

bool ProcessTable::identify(GpuProcess& process) {
  if (!has_host_pids()) return false;
  const auto& identity = look_up(process.pid);
  if (identity) {
    process.uid = identity->uid;
    process.name = identity->name;
  }
  for (std::int64_t pid = process.pid; pid > 1 && process.lineage.size() < kMaxLineage;) {
    const auto& ancestor = look_up(pid);
    if (!ancestor) {
      // With hidepid, other users see only the owner of /proc/PID.
      const auto owner = read_process_owner(static_cast<pid_t>(pid));
      if (owner) process.lineage.push_back({pid, owner, "", false});
      break;
    }
    process.lineage.push_back({pid, ancestor->effective_uid, ancestor->name, ancestor->is_root});
    pid = ancestor->parent;
  }
  return identity.has_value();
}

// The state that a thread shares with its ProcessMemoryReader. It outlives the reader if the thread
// is stuck.
struct ProcessMemoryReader::ReaderThread {
  Read read;
  std::vector<ProcessQuery> queries;
  Mutex mutex;
  Condition more;
  // The results of the first found.size() queries; the thread works on the next one.
  std::vector<ProcessFacts> found GUARDED_BY(mutex);
  bool abandoned GUARDED_BY(mutex) = false;
  bool ended GUARDED_BY(mutex) = false;

  void run() {
    for (const ProcessQuery& query : queries) {
      ProcessFacts result = read(query);
      const MutexLock lock(mutex);
      found.push_back(std::move(result));
      more.notify_all();
      if (abandoned) break;
    }
    const MutexLock lock(mutex);
    ended = true;
  }

  // Waits for more than `count` results; false if that takes longer than `timeout`.
  bool wait_for_more(std::size_t count, std::chrono::milliseconds timeout) REQUIRES(mutex) {
    const auto until = std::chrono::steady_clock::now() + timeout;
    while (found.size() <= count) {
      if (!more.wait_until(mutex, until)) return found.size() > count;
    }
    return true;
  }
};

ProcessMemoryReader::ProcessMemoryReader(std::chrono::milliseconds timeout, Read read)
    : timeout_(timeout), read_(read ? std::move(read) : Read(read_process)) {}

bool ProcessMemoryReader::is_stuck(std::int64_t pid) const {
  return std::any_of(stuck_.begin(), stuck_.end(), [&](const auto& thread) {
    const MutexLock lock(thread->mutex);
    return thread->found.size() < thread->queries.size() &&
           thread->queries[thread->found.size()].pid == pid;
  });
}

void ProcessMemoryReader::read(std::map<std::int64_t, ProcessFacts>& found,
                               std::vector<ProcessQuery> queries) {
  std::erase_if(stuck_, [](const auto& thread) {
    const MutexLock lock(thread->mutex);
    return thread->ended;
  });
  std::erase_if(queries, [&](const ProcessQuery& query) { return is_stuck(query.pid); });
  while (!queries.empty() && stuck_.size() < kMaxStuckThreads) {
    const auto thread = std::make_shared<ReaderThread>();
    thread->read = read_;
    thread->queries = queries;
    try {
      std::thread([thread] { thread->run(); }).detach();
    } catch (const std::system_error&) {
      return;  // no thread can be started (ulimit -u), so the leases stay unknown
    }
    const MutexLock lock(thread->mutex);
    std::size_t count = 0;
    while (count < queries.size() && thread->wait_for_more(count, timeout_)) {
      count = thread->found.size();
    }
    for (std::size_t i = 0; i < count; ++i) found[queries[i].pid] = thread->found[i];
    if (count == queries.size()) return;
    thread->abandoned = true;
    stuck_.push_back(thread);
    queries.erase(queries.begin(), queries.begin() + static_cast<std::ptrdiff_t>(count) + 1);
  }
}

void ProcessMemoryReader::read_into(std::vector<Gpu>& gpus) {
  std::set<std::int64_t> pids;
  for (const Gpu& gpu : gpus) {
    for (const GpuProcess& process : gpu.processes) {
      if (!process.lineage.empty()) pids.insert(process.pid);
    }
  }
  std::vector<ProcessQuery> queries;
  queries.reserve(pids.size());
  for (const std::int64_t pid : pids) queries.push_back({pid, false});
  std::map<std::int64_t, ProcessFacts> found;
  read(found, std::move(queries));
  for (Gpu& gpu : gpus) {
    for (GpuProcess& process : gpu.processes) process.lease = found[process.pid].lease;
  }
}

void ProcessMemoryReader::read_into(std::vector<GpuSample>& samples) {
  std::map<std::int64_t, bool> pids;  // value: whether to search for a framework
  for (const GpuSample& sample : samples) {
    for (const GpuProcess& process : sample.processes) {
      if (process.lineage.empty()) continue;
      bool& framework = pids[process.pid];
      framework =
          framework || (uses_most_memory(process, sample) && !frameworks_.contains(process.pid));
    }
  }
  std::erase_if(frameworks_, [&](const auto& entry) { return !pids.contains(entry.first); });
  std::vector<ProcessQuery> queries;
  queries.reserve(pids.size());
  for (const auto& [pid, framework] : pids) queries.push_back({pid, framework});
  std::map<std::int64_t, ProcessFacts> found;
  read(found, std::move(queries));
  for (const auto& [pid, result] : found) {
    if (pids[pid]) frameworks_[pid] = result.framework;
  }
  for (GpuSample& sample : samples) {
    for (GpuProcess& process : sample.processes) {
      process.lease = found[process.pid].lease;
      if (const auto known = frameworks_.find(process.pid); known != frameworks_.end()) {
        process.framework = known->second;
      }
    }
  }
}

}  // namespace berth
