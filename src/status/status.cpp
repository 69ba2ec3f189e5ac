// Puts the status together; see status.h.
#include "status/status.h"

#include <array>
#include <unistd.h>
#include <utility>

#include "archive/history.h"
#include "base/pid_namespace.h"
#include "base/process.h"
#include "cluster/store/hosts.h"
#include "status/explain.h"

namespace berth {
namespace {

// With texts that a list can show: others' records may have long ones, and there may be many.
Record truncate_texts(Record record) {
  constexpr std::size_t kMaxBytes = 512;
  if (record.command.size() > kMaxBytes) {
    record.command = std::string(truncate_utf8(record.command, kMaxBytes)).append("…");
  }
  record.job = std::string(truncate_utf8(record.job, 2 * kMaxBytes));
  return record;
}

std::vector<TicketStatus> queue_status(const HarbourContents& contents, const HostView& view,
                                       const Topology& topology) {
  PlanInput input = make_plan_input(view, topology, std::chrono::system_clock::now());
  for (std::size_t i = 0; i < contents.tickets.size(); ++i) {
    input.tickets.push_back(make_queued_ticket(contents.tickets[i], contents.stopped[i]));
  }
  const std::vector<Outcome> outcomes = plan(input);
  std::vector<TicketStatus> queue;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    TicketStatus status;
    status.record = contents.tickets[i];
    status.position = i + 1;
    const Outcome& outcome = outcomes[i];
    if (outcome.wait) {
      status.reason = explain_wait(*outcome.wait, status.record.request, view);
      status.starts = outcome.wait->expected_start;
    } else if (outcome.impossible) {
      status.reason = explain_impossible(*outcome.impossible, status.record.request, view).message;
    } else {
      status.reason = "could start now, but has not claimed its GPUs";
    }
    queue.push_back(std::move(status));
  }
  return queue;
}

// Only while its holder looks does the time of the record say anything. A shell's holder is its
// keeper, without which there is no lease.
bool is_usage_sampled(const Record& lease) {
  if (!lease.sampled) return false;
  if (lease.holder == HolderKind::shell) return true;
  return lease.pid_namespace == pid_namespace() && read_process_owner(lease.pid) == lease.uid;
}

}  // namespace

std::optional<TimePoint> idle_since(const Record& lease, TimePoint now) {
  constexpr std::chrono::minutes kMinIdleTime(10);
  if (!is_usage_sampled(lease) || now - lease.last_used < kMinIdleTime) return std::nullopt;
  return lease.last_used;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

std::string local_host_name(const HarbourLocation& where) {
  return where.url ? where.host : host_name();
}

Result<HarbourContents> read_contents(Harbour& harbour) {
  auto transaction = harbour.begin(LockMode::shared, {});
  if (!transaction) return tl::make_unexpected(transaction.error());
  auto contents = read_contents(**transaction);
  transaction->reset();
  if (contents) mark_stopped_tickets(*contents);
  return contents;
}

void mark_stopped_tickets(HarbourContents& contents) {
  StoppedProcesses stopped;
  stopped.read(contents.tickets);
  for (std::size_t i = 0; i < contents.tickets.size(); ++i) {
    if (stopped.contains(contents.tickets[i])) contents.stopped[i] = true;
  }
}

Result<HarbourContents> read_contents(Transaction& transaction) {
  HarbourContents contents;
  const auto leases = transaction.read_leases();
  if (!leases) return tl::make_unexpected(leases.error());
  for (const Client& lease : *leases) contents.leases.push_back(truncate_texts(lease.record));
  for (const TicketName& name : transaction.queue()) {
    auto ticket = transaction.read_ticket(name);
    if (!ticket) return tl::make_unexpected(ticket.error());
    if (!*ticket) continue;
    contents.stopped.push_back(is_unresponsive(**ticket));
    contents.tickets.push_back(truncate_texts(std::move((*ticket)->record)));
    contents.ticket_names.push_back(name);
  }
  auto drains = transaction.read_drains();
  if (!drains) return tl::make_unexpected(drains.error());
  contents.drains = std::move(*drains);
  contents.ignored_entries = transaction.ignored_entries();
  return contents;
}

Status make_status(std::string host, HarbourContents contents, HostView view,
                   const Topology& topology) {
  Status status;
  status.host = std::move(host);
  view.tickets = contents.tickets;
  if (!contents.tickets.empty()) status.queue = queue_status(contents, view, topology);
  for (GpuWithLeases& gpu_view : view.gpus) {
    const GpuStateReason state_reason = classify(gpu_view);
    status.gpus.push_back({std::move(gpu_view), state_reason});
  }
  status.leases = std::move(contents.leases);
  status.ignored_entries = std::move(contents.ignored_entries);
  return status;
}

Result<Status> observe_host(Probe& probe, bool simulated, HarbourLocation where) {
  auto snapshot = probe.snapshot();
  if (!snapshot) return tl::make_unexpected(snapshot.error());
  std::string name = local_host_name(where);
  HarbourContents contents;
  auto harbour = Harbour::open_existing(std::move(where));
  if (!harbour) return tl::make_unexpected(harbour.error());
  if (*harbour) {
    auto read = read_contents(**harbour);
    if (!read) return tl::make_unexpected(read.error());
    contents = std::move(*read);
  }
  HostView view = attribute_processes(*snapshot, contents.leases, contents.drains);
  if (*harbour) publish_host_info(**harbour, view, snapshot->driver_version);
  Topology topology;
  if (!contents.tickets.empty()) topology = probe.topology().value_or(Topology{});
  Status status = make_status(std::move(name), std::move(contents), std::move(view), topology);
  status.driver = std::move(snapshot->driver_version);
  status.simulated = simulated;
  return status;
}

}  // namespace berth
