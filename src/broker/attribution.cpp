// Processes and leases; see attribution.h.
#include "broker/attribution.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <string_view>
#include <unistd.h>

#include "base/pid_namespace.h"
#include "base/unique_fd.h"

namespace berth {
namespace {

std::string read_proc(std::int64_t pid, const char* file) {
  const UniqueFd fd(::open(fmt::format("/proc/{}/{}", pid, file).c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t length = 1; fd && length > 0;) {
    length = ::read(fd.get(), buffer.data(), buffer.size());
    if (length > 0) text.append(buffer.data(), static_cast<std::size_t>(length));
  }
  return text;
}

// The fourth field of /proc/PID/stat. The second is a name in brackets that may contain anything.
std::optional<std::int64_t> parent_of(std::int64_t pid) {
  const std::string stat = read_proc(pid, "stat");
  const auto bracket = stat.rfind(") ");
  if (bracket == std::string::npos || bracket + 4 >= stat.size()) return std::nullopt;
  std::int64_t parent = 0;
  const char* start = stat.data() + bracket + 4;
  const auto [end, problem] = std::from_chars(start, stat.data() + stat.size(), parent);
  return problem == std::errc{} ? std::optional(parent) : std::nullopt;
}

std::string lease_in_environment(std::int64_t pid) {
  constexpr std::string_view name = "BERTH_LEASE=";
  const std::string environment = read_proc(pid, "environ");
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
  std::optional<std::int64_t> ancestor = process.pid;
  for (int i = 0; i < kDeepest && ancestor && *ancestor > 1; ++i) {
    for (const Record* lease : here) {
      if (lease->pid == *ancestor && lease->pid_namespace == pid_namespace()) return lease->id;
    }
    ancestor = parent_of(*ancestor);
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
