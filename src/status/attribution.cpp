// Processes and leases; see attribution.h.
#include "status/attribution.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/pid_namespace.h"
#include "base/users.h"

namespace berth {
namespace {

// Names as /proc shows them, cut to 15 bytes: nvidia-cuda-mps-server, nvidia-cuda-mps-control.
constexpr std::string_view kMps = "nvidia-cuda-mps";
constexpr std::array<std::string_view, 5> kDaemons{kMps, "nvidia-persiste", "nv-hostengine",
                                                   "dcgm-exporter", "nv-fabricmanage"};
// More than any context without data needs (up to 555 MiB).
constexpr Bytes kDaemonMemory = gib(1);

// The overflow uid stands for every user that this user namespace does not map: two processes with
// it may belong to different users.
bool is_of_user(std::optional<uid_t> owner, const Record& lease) {
  return owner == lease.uid && is_identified(lease.uid);
}

// Is this the process for which the lease was made? By its number alone it might be another user's:
// numbers are used again, and a record can name any. (Root may lease for another user's shell.)
bool is_for(const Record& lease, const Ancestor& process) {
  if (lease.pid != process.pid || lease.pid_namespace != pid_namespace()) return false;
  if (is_root(lease.uid) && lease.holder == HolderKind::shell) return true;
  return is_of_user(process.uid, lease);
}

// The first of `leases` from whose process it descends.
const Record* descends_from(const GpuProcess& process, const std::vector<const Record*>& leases) {
  for (const Ancestor& ancestor : process.lineage) {
    for (const Record* lease : leases) {
      if (is_for(*lease, ancestor)) return lease;
    }
  }
  return nullptr;
}

// The one of `leases` that its environment names. Any process can write anything there, so it
// counts only for processes of the lease's user and of root (containers).
const Record* names_one(const GpuProcess& process, const std::vector<const Record*>& leases) {
  for (const Record* lease : leases) {
    const bool roots = process.uid && is_root(*process.uid);
    if (process.lease == lease->id && (roots || is_of_user(process.uid, *lease))) return lease;
  }
  return nullptr;
}

}  // namespace

bool runs_under(const GpuProcess& process, const Record& lease) {
  return descends_from(process, {&lease}) != nullptr || names_one(process, {&lease}) != nullptr;
}

bool is_driver_daemon(const GpuProcess& process) {
  if (process.lineage.empty() || !process.memory || *process.memory > kDaemonMemory) return false;
  const Ancestor& self = process.lineage.front();
  if (self.is_root) {
    return std::find(kDaemons.begin(), kDaemons.end(), self.name) != kDaemons.end();
  }
  if (self.name != kMps || process.lineage.size() < 2) return false;
  const Ancestor& parent = process.lineage[1];
  return parent.is_root && parent.name == kMps;
}

bool holds(const Record& lease, const Gpu& gpu) {
  if (lease.everything) return true;
  return gpu.uuid &&
         std::find(lease.uuids.begin(), lease.uuids.end(), *gpu.uuid) != lease.uuids.end();
}

std::string lease_of(const GpuProcess& process, const Gpu& gpu, const std::vector<Record>& leases) {
  std::vector<const Record*> here;
  for (const Record& lease : leases) {
    if (holds(lease, gpu)) here.push_back(&lease);
  }
  if (here.empty()) return "";
  if (here.size() == 1 && is_of_user(process.uid, *here.front())) return here.front()->id;
  if (const Record* lease = descends_from(process, here)) return lease->id;
  if (const Record* lease = names_one(process, here)) return lease->id;
  for (const Record* lease : here) {
    if (is_of_user(process.uid, *lease)) return lease->id;
  }
  return "";
}

}  // namespace berth
