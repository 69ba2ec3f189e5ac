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

}  // namespace

bool holds(const Record& lease, const Gpu& gpu) {
  if (lease.everything) return true;
  return gpu.uuid && std::find(lease.uuids.begin(), lease.uuids.end(), *gpu.uuid) != lease.uuids.end();
}

std::string lease_of(const GpuProcess& process, const Gpu& gpu, const std::vector<Record>& leases) {
  std::vector<const Record*> here;
  for (const Record& lease : leases) {
    if (holds(lease, gpu)) here.push_back(&lease);
  }
  if (here.empty()) return "";
  if (here.size() == 1 && process.uid == here.front()->uid) return here.front()->id;
  if (!in_host_pid_namespace()) return "";  // the driver's PIDs mean nothing here
  constexpr int kDeepest = 64;
  auto ancestor = static_cast<pid_t>(process.pid);
  for (int i = 0; i < kDeepest && ancestor > 1; ++i) {
    for (const Record* lease : here) {
      if (lease->pid == ancestor && lease->pid_namespace == pid_namespace()) return lease->id;
    }
    const auto stat = read_process_stat(ancestor);
    ancestor = stat ? stat->parent : 0;
  }
  const std::string named = lease_in_environment(process.pid);
  for (const Record* lease : here) {
    if (lease->id == named) return named;
  }
  for (const Record* lease : here) {
    if (process.uid == lease->uid) return lease->id;
  }
  return "";
}

}  // namespace berth
