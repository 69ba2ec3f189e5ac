// Attributes processes to leases; see attribution.h.
#include "status/attribution.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/process.h"
#include "base/users.h"

namespace berth {
namespace {

// Names as in /proc, which cuts them to 15 bytes: nvidia-cuda-mps-server, nvidia-cuda-mps-control.
constexpr std::string_view kMpsName = "nvidia-cuda-mps";
constexpr std::array<std::string_view, 5> kDaemonNames{kMpsName, "nvidia-persiste", "nv-hostengine",
                                                       "dcgm-exporter", "nv-fabricmanage"};
// More than a CUDA context without data needs (up to 555 MiB).
constexpr Bytes kMaxDaemonMemory = gib(1);

// The overflow uid stands for all users that this user namespace does not map: two processes with
// it may belong to different users.
bool has_lease_user(std::optional<uid_t> owner, const Record& lease) {
  return owner == lease.uid && is_identified(lease.uid);
}

// True if the lease was made for this process. A PID alone is not enough: the kernel reuses PIDs,
// and a record can name any PID. (Root may acquire a lease for the shell of another user.)
bool is_lease_process(const Record& lease, const Ancestor& process) {
  if (lease.pid != process.pid || lease.pid_namespace != pid_namespace()) return false;
  if (is_root(lease.uid) && lease.holder == HolderKind::shell) return true;
  return has_lease_user(process.uid, lease);
}

// The first of `leases` from whose process `process` descends.
const Record* find_lease_by_ancestor(const GpuProcess& process,
                                     const std::vector<const Record*>& leases) {
  for (const Ancestor& ancestor : process.lineage) {
    for (const Record* lease : leases) {
      if (is_lease_process(*lease, ancestor)) return lease;
    }
  }
  return nullptr;
}

// The lease among `leases` that the environment of `process` names. Any process can set any
// environment, so it counts only for processes of the lease's user and of root (containers).
const Record* find_lease_by_environment(const GpuProcess& process,
                                        const std::vector<const Record*>& leases) {
  for (const Record* lease : leases) {
    const bool roots = process.uid && is_root(*process.uid);
    if (process.lease == lease->id && (roots || has_lease_user(process.uid, *lease))) return lease;
  }
  return nullptr;
}

}  // namespace

bool runs_under(const GpuProcess& process, const Record& lease) {
  return find_lease_by_ancestor(process, {&lease}) != nullptr ||
         find_lease_by_environment(process, {&lease}) != nullptr;
}

bool is_driver_daemon(const GpuProcess& process) {
  if (process.lineage.empty() || !process.memory || *process.memory > kMaxDaemonMemory)
    return false;
  const Ancestor& self = process.lineage.front();
  if (self.is_root) {
    return std::find(kDaemonNames.begin(), kDaemonNames.end(), self.name) != kDaemonNames.end();
  }
  if (self.name != kMpsName || process.lineage.size() < 2) return false;
  const Ancestor& parent = process.lineage[1];
  return parent.is_root && parent.name == kMpsName;
}

bool holds_gpu(const Record& lease, const Gpu& gpu) {
  if (lease.holds_all_gpus) return true;
  return gpu.uuid &&
         std::find(lease.uuids.begin(), lease.uuids.end(), *gpu.uuid) != lease.uuids.end();
}

std::string find_lease_id(const GpuProcess& process, const Gpu& gpu,
                          const std::vector<Record>& leases) {
  std::vector<const Record*> here;
  for (const Record& lease : leases) {
    if (holds_gpu(lease, gpu)) here.push_back(&lease);
  }
  if (here.empty()) return "";
  if (here.size() == 1 && has_lease_user(process.uid, *here.front())) return here.front()->id;
  if (const Record* lease = find_lease_by_ancestor(process, here)) return lease->id;
  if (const Record* lease = find_lease_by_environment(process, here)) return lease->id;
  for (const Record* lease : here) {
    if (has_lease_user(process.uid, *lease)) return lease->id;
  }
  return "";
}

std::vector<AttributedProcess> attribute_processes(const Gpu& gpu,
                                                   const std::vector<Record>& leases) {
  std::vector<AttributedProcess> attributed;
  for (const GpuProcess& process : gpu.processes) {
    attributed.push_back({process, find_lease_id(process, gpu, leases), is_driver_daemon(process)});
  }
  return attributed;
}

}  // namespace berth
