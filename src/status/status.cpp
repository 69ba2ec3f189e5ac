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
Record for_lists(Record record) {
  constexpr std::size_t kLongest = 512;
  if (record.command.size() > kLongest) {
    record.command = std::string(cut(record.command, kLongest)).append("…");
  }
  record.job = std::string(cut(record.job, 2 * kLongest));
  return record;
}

std::vector<TicketStatus> queue_status(const HarbourContents& ledger, const HostView& scene,
                                       const Topology& topology) {
  PlanInput input = plan_input(scene, topology, std::chrono::system_clock::now());
  for (std::size_t i = 0; i < ledger.tickets.size(); ++i) {
    input.tickets.push_back(queued(ledger.tickets[i], ledger.stopped[i]));
  }
  const std::vector<Outcome> outcomes = plan(input);
  std::vector<TicketStatus> queue;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    TicketStatus status;
    status.record = ledger.tickets[i];
    status.position = i + 1;
    const Outcome& outcome = outcomes[i];
    if (outcome.wait) {
      status.reason = explain_wait(*outcome.wait, status.record.request, scene);
      status.starts = outcome.wait->starts;
    } else if (outcome.impossible) {
      status.reason = explain_impossible(*outcome.impossible, status.record.request, scene).message;
    } else {
      status.reason = "could start now, but has not claimed its GPUs";
    }
    queue.push_back(std::move(status));
  }
  return queue;
}

// Only while its holder looks does the time of the record say anything. A shell's holder is its
// keeper, without which there is no lease.
bool is_looked_at(const Record& lease) {
  if (!lease.sampled) return false;
  if (lease.holder == HolderKind::shell) return true;
  return lease.pid_namespace == pid_namespace() && process_owner(lease.pid) == lease.uid;
}

}  // namespace

std::optional<TimePoint> idle_since(const Record& lease, TimePoint now) {
  constexpr std::chrono::minutes kIdle(10);
  if (!is_looked_at(lease) || now - lease.used < kIdle) return std::nullopt;
  return lease.used;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

std::string this_host(const HarbourLocation& where) {
  return where.url ? where.host : host_name();
}

Result<HarbourContents> read_contents(Harbour& harbour) {
  auto transaction = harbour.begin(LockMode::shared, {});
  if (!transaction) return tl::make_unexpected(transaction.error());
  auto ledger = read_contents(**transaction);
  transaction->reset();
  if (ledger) find_stopped(*ledger);
  return ledger;
}

void find_stopped(HarbourContents& ledger) {
  StoppedProcesses stopped;
  stopped.read(ledger.tickets);
  for (std::size_t i = 0; i < ledger.tickets.size(); ++i) {
    if (stopped.contains(ledger.tickets[i])) ledger.stopped[i] = true;
  }
}

Result<HarbourContents> read_contents(Transaction& transaction) {
  HarbourContents ledger;
  const auto leases = transaction.leases();
  if (!leases) return tl::make_unexpected(leases.error());
  for (const Client& lease : *leases) ledger.leases.push_back(for_lists(lease.record));
  for (const TicketName& name : transaction.queue()) {
    auto ticket = transaction.ticket(name);
    if (!ticket) return tl::make_unexpected(ticket.error());
    if (!*ticket) continue;
    ledger.stopped.push_back(is_unresponsive(**ticket));
    ledger.tickets.push_back(for_lists(std::move((*ticket)->record)));
    ledger.ticket_names.push_back(name);
  }
  auto drains = transaction.drains();
  if (!drains) return tl::make_unexpected(drains.error());
  ledger.drains = std::move(*drains);
  ledger.ignored_entries = transaction.ignored_entries();
  return ledger;
}

Status make_status(std::string host, HarbourContents ledger, HostView scene, const Topology& topology) {
  Status status;
  status.host = std::move(host);
  scene.tickets = ledger.tickets;
  if (!ledger.tickets.empty()) status.queue = queue_status(ledger, scene, topology);
  for (GpuWithLeases& placed : scene.gpus) {
    const GpuStateReason judgement = judge(placed);
    status.gpus.push_back({std::move(placed), judgement});
  }
  status.leases = std::move(ledger.leases);
  status.ignored_entries = std::move(ledger.ignored_entries);
  return status;
}

Result<Status> observe(Probe& probe, bool simulated, HarbourLocation where) {
  auto snapshot = probe.snapshot();
  if (!snapshot) return tl::make_unexpected(snapshot.error());
  std::string name = this_host(where);
  HarbourContents ledger;
  auto harbour = Harbour::open_existing(std::move(where));
  if (!harbour) return tl::make_unexpected(harbour.error());
  if (*harbour) {
    auto read = read_contents(**harbour);
    if (!read) return tl::make_unexpected(read.error());
    ledger = std::move(*read);
  }
  HostView scene = attribute_processes(*snapshot, ledger.leases, ledger.drains);
  if (*harbour) publish(**harbour, scene, snapshot->driver_version);
  Topology topology;
  if (!ledger.tickets.empty()) topology = probe.topology().value_or(Topology{});
  Status status = make_status(std::move(name), std::move(ledger), std::move(scene), topology);
  status.driver = std::move(snapshot->driver_version);
  status.simulated = simulated;
  return status;
}

}  // namespace berth
