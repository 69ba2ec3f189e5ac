// Processes and leases; see attribution.h.
#include "broker/attribution.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <string_view>

#include "base/pid_namespace.h"
#include "base/process.h"

namespace berth {
namespace {

std::string lease_in_environment(std::int64_t pid) {
  constexpr std::string_view name = "BERTH_LEASE=";
  std::ifstream file(fmt::format("/proc/{}/environ", pid), std::ios::binary);
  const std::string environment(std::istreambuf_iterator<char>(file), {});
  std::string_view rest = environment;
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    if (entry.starts_with(name)) return std::string(entry.substr(name.size()));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
  }
  return "";
}

// Is this the process for which the lease was made? By its number alone it might be another user's:
// numbers are used again, and a record can name any. (Root may lease for another user's shell.)
bool is_for(const Record& lease, pid_t pid) {
  if (lease.pid != pid || lease.pid_namespace != pid_namespace()) return false;
  if (lease.uid == 0 && lease.holder == HolderKind::shell) return true;
  return process_owner(pid) == lease.uid;
}

// The first of `leases` from whose process it descends.
const Record* descends_from(std::int64_t pid, const std::vector<const Record*>& leases) {
  constexpr int kDeepest = 64;
  auto ancestor = static_cast<pid_t>(pid);
  for (int i = 0; i < kDeepest && ancestor > 1; ++i) {
    for (const Record* lease : leases) {
      if (is_for(*lease, ancestor)) return lease;
    }
    const auto stat = read_process_stat(ancestor);
    ancestor = stat ? stat->parent : 0;
  }
  return nullptr;
}

// The one of `leases` that its environment names. Anybody can write anything there; its own user,
// and root (containers), would.
const Record* names_one(const GpuProcess& process, const std::vector<const Record*>& leases) {
  const std::string named = lease_in_environment(process.pid);
  for (const Record* lease : leases) {
    if (lease->id == named && (process.uid == lease->uid || process.uid == 0U)) return lease;
  }
  return nullptr;
}

}  // namespace

bool runs_under(const GpuProcess& process, const Record& lease) {
  if (!in_host_pid_namespace()) return false;  // the driver's PIDs mean nothing here
  return descends_from(process.pid, {&lease}) != nullptr || names_one(process, {&lease}) != nullptr;
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
  if (here.size() == 1 && process.uid == here.front()->uid) return here.front()->id;
  if (!in_host_pid_namespace()) return "";  // the driver's PIDs mean nothing here
  if (const Record* lease = descends_from(process.pid, here)) return lease->id;
  if (const Record* lease = names_one(process, here)) return lease->id;
  for (const Record* lease : here) {
    if (process.uid == lease->uid) return lease->id;
  }
  return "";
}

}  // namespace berth
