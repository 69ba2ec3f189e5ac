// Checks a process and its GPUs, and writes the lease; see adopt.h.
#include "lease/adopt.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <optional>
#include <unistd.h>
#include <utility>

#include "base/process.h"
#include "base/text.h"
#include "base/users.h"
#include "lease/acquire.h"
#include "lease/decision_context.h"
#include "lease/own_record.h"
#include "schedule/match.h"
#include "status/explain.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxAttempts = 10;

// What one look at the harbour and the snapshot has found. It is turned into words without the
// lock.
struct AdoptionCheck {
  std::vector<std::string> uuids;      // the GPUs that the process and its descendants use
  std::vector<std::string> own_uuids;  // those that the process itself uses
  std::string gpu_without_uuid;        // the index of one that cannot be leased
  std::string lease;                   // under which a process runs already: `lease_pid`
  std::int64_t lease_pid = 0;
  HostView view;                   // as if the process had the lease; the lease is not in it
  std::optional<Outcome> outcome;  // unset: the members above tell the reason
  std::optional<Record> ticket;    // that comes first
};

bool has_uuid(const std::vector<std::string>& uuids, const std::string& uuid) {
  return std::find(uuids.begin(), uuids.end(), uuid) != uuids.end();
}

// Sets the GPUs that the process and its descendants compute on, and their lease.
void find_gpus_of(const Record& record, const HostView& view, AdoptionCheck& check) {
  for (const GpuWithLeases& gpu_view : view.gpus) {
    for (const AttributedProcess& one : gpu_view.processes) {
      if (one.process.kind != ProcessKind::compute || one.daemon) continue;
      if (!runs_under(one.process, record)) continue;
      if (!one.lease.empty()) {
        check.lease = one.lease;
        check.lease_pid = one.process.pid;
      }
      const auto& uuid = gpu_view.gpu.uuid;
      if (!uuid) check.gpu_without_uuid = to_string(gpu_view.gpu.index);
      if (uuid && !has_uuid(check.uuids, *uuid)) check.uuids.push_back(*uuid);
      if (uuid && one.process.pid == record.pid) check.own_uuids.push_back(*uuid);
    }
  }
}

// The host as it would be with the lease: what is a stranger then stands in its way.
HostView make_view_with(const Record& record, const Snapshot& snapshot, std::vector<Record> leases,
                        const std::vector<Drain>& drains) {
  leases.push_back(record);
  HostView view = make_host_view(snapshot, leases, drains);
  std::erase_if(view.leases, [&](const Record& lease) { return lease.id == record.id; });
  for (GpuWithLeases& gpu_view : view.gpus) std::erase(gpu_view.leases, record.id);
  return view;
}

// The first ticket that the lease would delay: one that can use a GPU beside the strangers on it,
// or that waits for a GPU which only descendants of the process use, and which is free when they
// end. `now`: the GPUs as they are without the lease.
Result<std::optional<Record>> find_preceding_ticket(Transaction& transaction, const PlanInput& now,
                                                    const AdoptionCheck& check) {
  const auto can_use = [&](const Request& request) {
    return std::any_of(now.gpus.begin(), now.gpus.end(), [&](const GpuCondition& gpu) {
      return has_uuid(check.uuids, gpu.uuid) && schedule::is_suitable(gpu, request) &&
             (gpu.strangers <= request.max_processes || !has_uuid(check.own_uuids, gpu.uuid));
    });
  };
  for (const TicketName& name : transaction.queue()) {
    const auto unproved = transaction.read_unproved_ticket(name);
    if (unproved && !can_use(unproved->record.request)) continue;
    std::optional<Client> ticket = TRY(transaction.read_ticket(name));
    if (ticket && can_use(ticket->record.request) && !transaction.is_stopped(*ticket))
      return std::move(ticket->record);
  }
  return std::nullopt;
}

// Rings the clients that watch all leases, and must know of this one: the first two of each user.
Result<void> ring_lease_watchers(Transaction& transaction) {
  std::map<uid_t, std::size_t> active;
  return transaction.visit_front([&](const Client& client) {
    transaction.ring(client);
    return !transaction.is_stopped(client) && ++active[client.record.uid] >= kFrontTickets;
  });
}

std::string name_gpu(const HostView& view, const std::string& uuid) {
  for (const GpuWithLeases& one : view.gpus) {
    if (one.gpu.uuid == uuid) return "GPU " + to_string(one.gpu.index);
  }
  return "GPU " + uuid;
}

class Adoption {
 public:
  Adoption(Probe& probe, const ProcessToAdopt& process, Harbour harbour, Harbour::OwnBell&& bell,
           const AcquireRequest& request)
      : probe_(probe),
        process_(process),
        harbour_(std::move(harbour)),
        bell_(std::move(bell.fd)),
        record_(make_record(request, std::move(bell.id))) {
    record_.pid = process.pid;
    record_.adopted_start = process.start_ticks;
    record_.directory_id = harbour_.directory_id();
  }

  Result<Lease> run() {
    for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
      const auto done = try_once();
      if (!done) {
        transaction_.reset();  // drops the lock: remove_client() may wait for Redis
        harbour_.remove_client(record_.id, std::nullopt);
        return tl::make_unexpected(done.error());
      }
      if (*done) {
        transaction_.reset();
        return Lease(std::move(harbour_), std::move(record_), std::move(bell_).share(),
                     std::move(snapshot_.gpus));
      }
      transaction_.reset();
    }
    harbour_.remove_client(record_.id, std::nullopt);
    return fail(ErrorKind::not_granted, "the harbour was busy during each attempt; try again");
  }

 private:
  // False: the snapshot became old, or another client changed the harbour first.
  Result<bool> try_once() {
    snapshot_ = TRY(probe_.snapshot());
    const auto taken = Clock::now();
    transaction_ = TRY(begin_to_ring_front(harbour_, LockMode::exclusive));
    if (Clock::now() - taken > kMaxSnapshotAge) return false;
    // Its PID meant this process until now, and so in the snapshot.
    if (has_ended(process_.handle)) {
      return fail(ErrorKind::usage, fmt::format("process {} has ended", process_.pid));
    }
    const auto recovery = transaction_->recovery_time_left();
    if (recovery.count() > 0) return fail(ErrorKind::not_granted, kRecoveryReason);
    auto check = find();
    if (!check && transaction_->needs_more_tickets()) return false;
    if (!check) return tl::make_unexpected(check.error());
    if (!check->outcome || !check->outcome->grant || check->ticket) {
      transaction_.reset();  // drops the lock: user_name() may be slow
      return tl::make_unexpected(explain(*check));
    }
    TRY(check_memory(check->view));
    TRY(write());
    return transaction_->commit();
  }

  Result<AdoptionCheck> find() {
    std::vector<Client> clients = TRY(transaction_->read_leases());
    const std::vector<Drain> drains = TRY(transaction_->read_drains());
    std::vector<Record> leases;
    leases.reserve(clients.size() + 1);  // and that of the process
    for (Client& client : clients) leases.push_back(std::move(client.record));
    AdoptionCheck check;
    check.view = make_host_view(snapshot_, leases, drains);
    find_gpus_of(record_, check.view, check);
    if (check.uuids.empty() || !check.gpu_without_uuid.empty() || !check.lease.empty())
      return check;
    const TimePoint now = std::chrono::system_clock::now();
    const PlanInput without = make_plan_input(check.view, {}, now);
    record_.uuids = check.uuids;
    record_.granted = now;
    record_.request.uuids = check.uuids;
    record_.request.count = static_cast<unsigned>(check.uuids.size());
    check.view = make_view_with(record_, snapshot_, std::move(leases), drains);
    const PlanInput with = make_plan_input(check.view, {}, now);
    const QueuedTicket wanted{record_.id, record_.request};
    check.outcome = Planner(with).decide(wanted);
    if (check.outcome->grant)
      check.ticket = TRY(find_preceding_ticket(*transaction_, without, check));
    return check;
  }

  // A lease that reserves less than is in use would be a lie from the start.
  Result<void> check_memory(const HostView& view) const {
    const auto& reserved = record_.request.memory;
    if (!reserved) return {};
    for (const GpuWithLeases& gpu_view : view.gpus) {
      std::uint64_t used = 0;
      for (const AttributedProcess& one : gpu_view.processes) {
        if (one.lease != record_.id) continue;
        if (!one.process.memory) {
          return fail(ErrorKind::impossible,
                      fmt::format("the driver does not report how much memory process {} uses on "
                                  "GPU {}; omit --mem, for whole GPUs",
                                  one.process.pid, to_string(gpu_view.gpu.index)));
        }
        used = saturating_add(used, one.process.memory->count);
      }
      if (used <= reserved->count) continue;
      return fail(ErrorKind::usage,
                  fmt::format("process {} uses {} on GPU {} already, and --mem is {}; reserve more",
                              process_.pid, format_size(Bytes{used}), to_string(gpu_view.gpu.index),
                              format_size(*reserved)));
    }
    return {};
  }

  Result<void> write() {
    TRY(ring_lease_watchers(*transaction_));
    record_.epoch = transaction_->next_epoch();
    std::optional<TicketName> no_ticket;
    return write_own_record(harbour_, *transaction_, record_, bell_, no_ticket,
                            [&] { return transaction_->write_lease(record_); });
  }

  Error explain(const AdoptionCheck& check) const {
    const pid_t pid = process_.pid;
    if (check.uuids.empty() && check.gpu_without_uuid.empty()) return explain_no_gpu();
    if (!check.lease.empty()) {
      return {
          ErrorKind::not_granted,
          fmt::format("process {}{} runs under lease {} already", check.lease_pid,
                      check.lease_pid == pid ? "" : fmt::format(", which process {} started,", pid),
                      check.lease)};
    }
    if (!check.gpu_without_uuid.empty()) {
      return {ErrorKind::impossible,
              fmt::format("process {} uses GPU {}, which cannot be leased: the driver reports no "
                          "UUID for it",
                          pid, check.gpu_without_uuid)};
    }
    if (check.outcome->impossible)
      return explain_impossible(*check.outcome->impossible, record_.request, check.view);
    if (check.ticket) {
      const std::string why =
          check.own_uuids.size() == check.uuids.size()
              ? "it accepts processes without a lease (--max-processes)"
              : fmt::format(
                    "process {0} may outlive those of its processes that use the GPUs; "
                    "adopt them instead of {0}",
                    pid);
      return {
          ErrorKind::not_granted,
          fmt::format("ticket {} of {} waits for {} and comes first: {}", check.ticket->id,
                      user_name(check.ticket->uid), name_gpus(check, check.ticket->request), why)};
    }
    return {ErrorKind::not_granted,
            fmt::format("process {} cannot be adopted: {}{}", pid,
                        explain_wait(*check.outcome->wait, record_.request, check.view),
                        explain_unknown_users(check))};
  }

  // Why strangers are in the way that may be this user's own.
  static std::string explain_unknown_users(const AdoptionCheck& check) {
    for (const GpuWithLeases& gpu_view : check.view.gpus) {
      if (!gpu_view.gpu.uuid || !has_uuid(check.uuids, *gpu_view.gpu.uuid)) continue;
      for (const AttributedProcess& one : gpu_view.processes) {
        if (one.is_stranger() && !one.process.uid)
          return fmt::format("; the kernel does not show whose pid {} is", one.process.pid);
      }
    }
    return "";
  }

  std::string name_gpus(const AdoptionCheck& check, const Request& request) const {
    std::vector<std::string> names;
    for (const std::string& uuid : check.uuids) {
      if (!request.uuids || has_uuid(*request.uuids, uuid))
        names.push_back(name_gpu(check.view, uuid));
    }
    return join_text(names, ", ");
  }

  // A GPU that cannot be read may be one that the process uses.
  Error explain_no_gpu() const {
    std::string unread;
    for (const Gpu& gpu : snapshot_.gpus) {
      if (gpu.health == Health::ok) continue;
      unread += fmt::format("; the state of GPU {} is unknown", to_string(gpu.index));
    }
    return {ErrorKind::usage,
            fmt::format("process {} uses no GPU: the driver lists neither it nor a process that it "
                        "started{}",
                        process_.pid, unread)};
  }

  Probe& probe_;
  const ProcessToAdopt& process_;
  Harbour harbour_;
  PrivateFd bell_;
  Record record_;
  Snapshot snapshot_;
  std::unique_ptr<Transaction> transaction_;
};

// The driver's PIDs are those of the host, and its processes belong to users of the host.
Result<void> check_process(const ProcessToAdopt& process) {
  if (!is_in_host_pid_namespace()) {
    return fail(ErrorKind::impossible,
                "the processes on the GPUs cannot be told apart in another PID namespace (a "
                "container); run berth adopt on the host");
  }
  const auto owner = read_process_owner(process.pid);
  if (has_ended(process.handle) || !owner) {
    return fail(ErrorKind::usage, fmt::format("process {} has ended", process.pid));
  }
  if (!is_identified(*owner)) {
    return fail(ErrorKind::permission,
                fmt::format("this user namespace does not show whose process {} is; run berth "
                            "adopt outside of it",
                            process.pid));
  }
  if (*owner == ::geteuid()) return {};
  return fail(ErrorKind::permission,
              fmt::format("process {} belongs to {}; only that user can adopt it", process.pid,
                          user_name(*owner)));
}

}  // namespace

Result<Lease> adopt_process(Probe& probe, const ProcessToAdopt& process,
                            const AcquireRequest& request) {
  TRY(check_process(process));
  Harbour harbour = TRY(Harbour::open(request.harbour));
  Harbour::OwnBell bell = TRY(harbour.make_bell());
  return Adoption(probe, process, std::move(harbour), std::move(bell), request).run();
}

}  // namespace berth
