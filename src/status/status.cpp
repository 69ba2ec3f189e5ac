// Reads the harbour and combines it with the GPUs; see status.h.
#include "status/status.h"

#include <memory>
#include <utility>

#include "archive/history.h"
#include "base/configuration.h"
#include "base/process.h"
#include "cluster/store/hosts.h"
#include "status/explain.h"
#include "status/start_estimates.h"

namespace berth {
namespace {

// Other users' records may have long texts, and there may be many records.
Record truncate_texts(Record record) {
  constexpr std::size_t kMaxBytes = 512;
  if (record.command.size() > kMaxBytes) {
    record.command = std::string(truncate_utf8(record.command, kMaxBytes)).append("…");
  }
  record.job = std::string(truncate_utf8(record.job, 2 * kMaxBytes));
  return record;
}

std::vector<TicketStatus> queue_status(const HarbourContents& contents, const HostView& view,
                                       const Topology& topology, TimePoint now) {
  PlanInput input = make_plan_input(view, topology, now);
  for (std::size_t i = 0; i < contents.tickets.size(); ++i) {
    input.tickets.push_back(make_queued_ticket(contents.tickets[i], contents.stopped[i]));
  }
  const std::vector<Outcome> outcomes = plan(input);
  const std::vector<StartEstimate> starts = estimate_starts(input);
  std::vector<TicketStatus> queue;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    TicketStatus status;
    status.record = contents.tickets[i];
    status.position = i + 1;
    const Outcome& outcome = outcomes[i];
    if (outcome.wait) {
      status.reason = explain_wait(*outcome.wait, status.record.request, view);
      status.starts = starts[i].time ? starts[i].time : outcome.wait->expected_start;
      if (!status.starts && starts[i].last_wait)
        status.start_unknown_reason = explain_unknown_start(*starts[i].last_wait, view, now);
    } else if (outcome.impossible) {
      status.reason = explain_impossible(*outcome.impossible, status.record.request, view).message;
    } else {
      status.reason = "GPUs are free for this ticket, but its process has not claimed them yet";
    }
    queue.push_back(std::move(status));
  }
  return queue;
}

// Record::last_used is current only while the lease's holder samples the usage. A shell's lease is
// sampled by its keeper, and lasts only as long as the keeper runs.
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

std::string local_host_name(const HarbourLocation& where) {
  return where.url ? where.host : kernel_host_name();
}

Result<HarbourContents> read_contents(Harbour& harbour) {
  std::unique_ptr<Transaction> transaction = TRY(harbour.begin(LockMode::shared, {}));
  HarbourContents contents = TRY(read_contents(*transaction));
  transaction.reset();
  mark_stopped_tickets(contents);
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
  const std::vector<Client> leases = TRY(transaction.read_leases());
  for (const Client& lease : leases) contents.leases.push_back(truncate_texts(lease.record));
  for (const TicketName& name : transaction.queue()) {
    std::optional<Client> ticket = TRY(transaction.read_ticket(name));
    if (!ticket) continue;
    contents.stopped.push_back(is_unresponsive(*ticket));
    contents.tickets.push_back(truncate_texts(std::move(ticket->record)));
    contents.ticket_names.push_back(name);
  }
  contents.drains = TRY(transaction.read_drains());
  contents.ignored_entries = transaction.ignored_entries();
  return contents;
}

Status make_status(std::string host, HarbourContents contents, HostView view,
                   const Topology& topology, TimePoint now) {
  Status status;
  status.host = std::move(host);
  status.time = now;
  view.tickets = contents.tickets;
  if (!contents.tickets.empty()) status.queue = queue_status(contents, view, topology, now);
  status.next_free = find_next_free(view, now);
  for (GpuWithLeases& gpu_view : view.gpus) {
    const GpuStateReason state_reason = classify(gpu_view);
    status.gpus.push_back({std::move(gpu_view), state_reason});
  }
  status.leases = std::move(contents.leases);
  status.ignored_entries = std::move(contents.ignored_entries);
  return status;
}

Result<Status> observe_host(Probe& probe, bool simulated, HarbourLocation where) {
  Snapshot snapshot = TRY(probe.snapshot());
  std::string name = local_host_name(where);
  HarbourContents contents;
  std::optional<Harbour> harbour = TRY(Harbour::open_existing(std::move(where)));
  if (harbour) contents = TRY(read_contents(*harbour));
  HostView view = make_host_view(snapshot, contents.leases, contents.drains);
  if (harbour) publish_host_info(*harbour, view, snapshot.driver_version);
  Topology topology;
  if (!contents.tickets.empty()) topology = probe.topology().value_or(Topology{});
  Status status = make_status(std::move(name), std::move(contents), std::move(view), topology,
                              std::chrono::system_clock::now());
  status.driver = std::move(snapshot.driver_version);
  status.simulated = simulated;
  return status;
}

}  // namespace berth
