// Finds the leases of a shell that no job needs any more; see earlier_leases.h.
#include "run/earlier_leases.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fmt/format.h>
#include <map>
#include <set>
#include <string_view>
#include <time.h>
#include <unistd.h>
#include <vector>

#include "base/environment.h"
#include "base/process.h"
#include "base/read_file.h"
#include "lease/cancel_and_release.h"
#include "lease/job_environment.h"

namespace berth {
namespace {

constexpr std::string_view kVisibleDevices = "CUDA_VISIBLE_DEVICES";

// When processes that may be jobs of the shell were started, in clock ticks since the host started;
// 0: there is none. Only the newest of each kind counts.
struct JobStarts {
  std::uint64_t family = 0;  // children of the shell, and what its session has left behind
  std::map<std::string, std::uint64_t> by_visible_devices{};  // the value of the variable
};

// This process and those between it and `owner`: they end with this call.
std::set<pid_t> find_own_chain(const OwnerProcess& owner) {
  std::set<pid_t> chain;
  for (pid_t pid = ::getpid(); pid > 0 && pid != owner.pid;) {
    chain.insert(pid);
    const auto stat = read_process_stat(pid);
    pid = stat ? stat->parent : 0;
  }
  return chain;
}

// The value of the variable in a process of this user. Empty: it is not set, or the process belongs
// to another lease or harbour.
std::string read_visible_devices(pid_t pid) {
  if (read_process_owner(pid) != ::geteuid()) return "";
  const auto environment = read_proc_file(fmt::format("/proc/{}/environ", pid).c_str());
  if (!environment) return "";
  std::string_view visible_devices;
  std::string_view lease;
  std::string_view directory;
  for (std::string_view rest = *environment; !rest.empty();) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    const auto equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = entry.substr(0, equals);
    const std::string_view value = entry.substr(equals + 1);
    if (name == kVisibleDevices) visible_devices = value;
    if (name == "BERTH_LEASE") lease = value;
    if (name == "BERTH_DIR") directory = value;
  }
  const bool is_other = !lease.empty() || directory != get_env_or_empty("BERTH_DIR");
  return is_other ? "" : std::string(visible_devices);
}

JobStarts find_job_starts(const OwnerProcess& owner) {
  const std::set<pid_t> chain = find_own_chain(owner);
  JobStarts starts;
  for (const pid_t pid : list_processes()) {
    const auto stat = read_process_stat(pid);
    if (!stat || chain.contains(pid) || pid == owner.pid) continue;
    const bool may_be_left_behind = stat->session == owner.session && pid != owner.session;
    const bool is_family =
        stat->parent == owner.pid || (may_be_left_behind && has_lost_parent(*stat));
    const std::string visible_devices = read_visible_devices(pid);
    if (!is_family && visible_devices.empty()) continue;
    if (const UniqueFd process = open_process(pid); !process || has_ended(process)) continue;
    if (is_family) starts.family = std::max(starts.family, stat->start_ticks);
    if (visible_devices.empty()) continue;
    std::uint64_t& newest = starts.by_visible_devices[visible_devices];
    newest = std::max(newest, stat->start_ticks);
  }
  return starts;
}

// When the newest process was started that has the lease's GPUs in its environment, in one of the
// two forms that gpuselect prints.
std::uint64_t find_user_start(const Record& lease, const Snapshot& snapshot,
                              const JobStarts& starts) {
  std::uint64_t newest = 0;
  for (const GpuIdFormat form : {GpuIdFormat::index, GpuIdFormat::uuid}) {
    for (const auto& [name, value] :
         make_job_environment(snapshot.gpus, lease.uuids, form, lease.id)) {
      const auto found = starts.by_visible_devices.find(value);
      if (name == kVisibleDevices && found != starts.by_visible_devices.end())
        newest = std::max(newest, found->second);
    }
  }
  return newest;
}

// A time in clock ticks since the host started, as ProcessStat has it; a second earlier, since the
// two clocks are not read at the same moment.
std::uint64_t to_ticks(TimePoint time) {
  using std::chrono::milliseconds;
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const auto since_start = std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  const auto age = std::chrono::system_clock::now() - time + std::chrono::seconds(1);
  const auto then = std::chrono::duration_cast<milliseconds>(since_start - age).count();
  return static_cast<std::uint64_t>(std::max<std::int64_t>(then, 0)) *
         static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK)) / 1000;
}

bool has_compute_process(const Snapshot& snapshot, const std::string& uuid) {
  for (const Gpu& gpu : snapshot.gpus) {
    if (gpu.uuid != uuid) continue;
    return gpu.health != Health::ok ||
           std::any_of(gpu.processes.begin(), gpu.processes.end(), [](const GpuProcess& process) {
             return process.kind == ProcessKind::compute;
           });
  }
  return true;  // it is not known whether the GPU is used
}

}  // namespace

Result<void> release_earlier_leases(const OwnerProcess& owner, const std::string& label,
                                    Probe& probe) {
  const Snapshot snapshot = TRY(probe.snapshot());
  const JobStarts starts = find_job_starts(owner);
  TRY(release_own_leases([&](const Record& lease) {
    if (lease.pid != owner.pid || lease.pid_namespace != pid_namespace() || lease.label != label)
      return false;
    const std::uint64_t granted = to_ticks(lease.granted);
    return starts.family < granted && find_user_start(lease, snapshot, starts) < granted &&
           std::none_of(lease.uuids.begin(), lease.uuids.end(), [&](const std::string& uuid) {
             return has_compute_process(snapshot, uuid);
           });
  }));
  return {};
}

}  // namespace berth
