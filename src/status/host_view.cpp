// Joins GPUs, processes and leases; see host_view.h.
#include "status/host_view.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <tuple>
#include <utility>

#include "base/users.h"
#include "schedule/match.h"
#include "status/gpu_state.h"

namespace berth {
namespace {

bool is_usable(const GpuWithLeases& gpu_view) {
  const Gpu& gpu = gpu_view.gpu;
  return gpu.health == Health::ok && !gpu_view.drain && !gpu.mig_without_instances &&
         gpu.compute_mode != ComputeMode::prohibited;
}

std::uint64_t sum_reserved_memory(const GpuWithLeases& gpu_view, const HostView& view) {
  std::uint64_t sum = 0;
  for (const Record& lease : view.leases) {
    if (!holds_gpu(lease, gpu_view.gpu)) continue;
    sum = saturating_add(sum, lease.request.memory.value_or(Bytes{}).count);
  }
  return sum;
}

// Sets the number of strangers that compute, and the memory that no lease accounts for.
void count_strangers(const GpuWithLeases& gpu_view, const HostView& view, GpuCondition& condition) {
  const Bytes whole = gpu_view.gpu.memory_total.value_or(Bytes{});
  std::uint64_t strangers = 0;
  std::uint64_t unidentified = 0;
  std::uint64_t attributed = 0;
  for (const AttributedProcess& one : gpu_view.processes) {
    const bool display = one.process.kind == ProcessKind::graphics;
    // A compute process whose memory is unknown may use all memory.
    const std::uint64_t memory = one.process.memory.value_or(display ? Bytes{} : whole).count;
    if (!one.lease.empty()) {
      attributed += one.process.memory.value_or(Bytes{}).count;
    } else if (one.is_stranger() && !one.process.uid && !gpu_view.leases.empty()) {
      // The process has no known user (a container). It may run under one of the GPU's leases.
      unidentified += memory;
    } else {
      strangers += memory;
      if (one.is_stranger()) ++condition.strangers;
    }
  }
  const std::uint64_t reserved = sum_reserved_memory(gpu_view, view);
  const std::uint64_t room = reserved > attributed ? reserved - attributed : 0;
  strangers += unidentified > room ? unidentified - room : 0;
  if (gpu_view.unexplained) {
    strangers += gpu_view.unexplained->count;
    if (gpu_view.leases.empty() && condition.strangers == 0) condition.strangers = 1;
  }
  // If the GPU uses the host's memory, everything that leased processes do not have on the GPU
  // counts as taken: by the operating system, by other programs, and by the host memory of the
  // jobs.
  if (gpu_view.gpu.memory_is_hosts && gpu_view.gpu.memory_used) {
    const std::uint64_t used = gpu_view.gpu.memory_used->count;
    strangers = std::max(strangers, used > attributed ? used - attributed : 0);
  }
  condition.strangers_memory = Bytes{strangers};
}

GpuCondition make_gpu_condition(const GpuWithLeases& gpu_view, const HostView& view) {
  const Gpu& gpu = gpu_view.gpu;
  GpuCondition condition;
  condition.uuid = *gpu.uuid;
  condition.name = gpu.name.value_or("");
  condition.memory = gpu.memory_total;
  condition.usable = is_usable(gpu_view);
  condition.utilization_pct = gpu.utilization_pct;
  condition.memory_utilization_pct = gpu.memory_utilization_pct;
  condition.display = gpu.display_active.value_or(false);
  count_strangers(gpu_view, view, condition);
  return condition;
}

// The largest memory that the lease uses on one of its GPUs.
Bytes find_max_memory_in_use(const Record& lease, const HostView& view) {
  std::uint64_t most = 0;
  for (const GpuWithLeases& gpu_view : view.gpus) {
    std::uint64_t sum = 0;
    for (const AttributedProcess& one : gpu_view.processes) {
      if (one.lease == lease.id) sum += one.process.memory.value_or(Bytes{}).count;
    }
    most = std::max(most, sum);
  }
  return {most};
}

// The user and job type that a profiling run measures; empty if it is not a profiling run.
std::string profile_key(const Record& record) {
  return record.is_profiling_run ? fmt::format("{} {}", record.uid, record.job) : std::string();
}

unsigned score_connection(const Connection& connection) {
  constexpr unsigned kPerNvlink = 100;
  unsigned score = kPerNvlink * connection.nvlinks.value_or(0);
  if (connection.proximity) {
    score +=
        static_cast<unsigned>(Proximity::system) - static_cast<unsigned>(*connection.proximity);
  }
  return score;
}

Closeness closeness(const std::vector<Gpu>& gpus, const Topology& topology) {
  if (topology.connections.empty()) return {};
  Closeness table(gpus.size(), std::vector<unsigned>(gpus.size(), 0));
  for (const Connection& connection : topology.connections) {
    for (std::size_t a = 0; a < gpus.size(); ++a) {
      for (std::size_t b = 0; b < gpus.size(); ++b) {
        if (gpus[a].index.card == connection.a.card && gpus[b].index.card == connection.b.card) {
          table[a][b] = table[b][a] = score_connection(connection);
        }
      }
    }
  }
  return table;
}

// True if `inner` takes up nothing beside `outer`. Any user can make a lease with any parent id, so
// the outer lease must belong to the same user (root may run inside a user's lease), must have all
// that the inner lease has, and must be older, so that no two leases can hide each other.
bool covers(const Record& outer, const Record& inner) {
  const bool same_user = outer.uid == inner.uid && is_identified(outer.uid);
  if (!same_user && !is_root(inner.uid)) return false;
  if (std::tie(inner.granted, inner.id) <= std::tie(outer.granted, outer.id)) return false;
  if (outer.holds_all_gpus || inner.holds_all_gpus || !outer.problem.empty()) return false;
  for (const std::string& uuid : inner.uuids) {
    if (std::find(outer.uuids.begin(), outer.uuids.end(), uuid) == outer.uuids.end()) return false;
  }
  if (!outer.request.memory) return true;
  return inner.request.memory && inner.request.memory->count <= outer.request.memory->count;
}

}  // namespace

HostView make_host_view(const Snapshot& snapshot, const std::vector<Record>& leases,
                        const std::vector<Drain>& drains) {
  HostView view;
  std::map<std::string, const Record*> by_id;
  for (const Record& lease : leases) by_id.emplace(lease.id, &lease);
  for (const Record& lease : leases) {
    const auto outer = lease.parent_lease.empty() ? by_id.end() : by_id.find(lease.parent_lease);
    const bool inside =
        outer != by_id.end() && outer->second != &lease && covers(*outer->second, lease);
    if (!inside) view.leases.push_back(lease);
  }
  for (const Gpu& gpu : snapshot.gpus) {
    GpuWithLeases gpu_view;
    gpu_view.gpu = gpu;
    gpu_view.shared = true;
    for (const Record& lease : view.leases) {
      if (!holds_gpu(lease, gpu)) continue;
      gpu_view.leases.push_back(lease.id);
      gpu_view.shared = gpu_view.shared && lease.request.memory && !lease.holds_all_gpus;
    }
    gpu_view.processes = attribute_processes(gpu, view.leases);
    for (const Drain& drain : drains) {
      if (drain.uuid == gpu.uuid) gpu_view.drain = drain;
    }
    gpu_view.unexplained = unexplained_memory(gpu);
    view.gpus.push_back(std::move(gpu_view));
  }
  return view;
}

PlanInput make_plan_input(const HostView& view, const Topology& topology, TimePoint now) {
  PlanInput input;
  input.now = now;
  std::vector<Gpu> gpus;
  for (const GpuWithLeases& gpu_view : view.gpus) {
    if (gpu_view.gpu.health == Health::lost || !gpu_view.gpu.uuid) continue;
    input.gpus.push_back(make_gpu_condition(gpu_view, view));
    gpus.push_back(gpu_view.gpu);
  }
  input.closeness = closeness(gpus, topology);
  for (const Record& lease : view.leases) {
    HeldLease held{lease.id,
                   lease.uuids,
                   lease.request.memory,
                   find_max_memory_in_use(lease, view),
                   lease.expected_end(),
                   profile_key(lease)};
    if (lease.holds_all_gpus) {
      held.memory.reset();
      held.uuids.clear();
      for (const Gpu& gpu : gpus) held.uuids.push_back(*gpu.uuid);
    }
    input.leases.push_back(std::move(held));
  }
  // Not std::random_device, which takes longer than the whole decision in a virtual machine.
  input.seed = static_cast<std::uint64_t>(now.time_since_epoch().count());
  return input;
}

bool matches(const Gpu& gpu, const Request& request) {
  GpuCondition condition;
  condition.uuid = gpu.uuid.value_or("");
  condition.name = gpu.name.value_or("");
  condition.memory = gpu.memory_total;
  return schedule::is_matching(condition, request);
}

QueuedTicket make_queued_ticket(const Record& ticket, bool stopped) {
  return {ticket.id, ticket.request, stopped, profile_key(ticket)};
}

}  // namespace berth
