// Leases inside leases; see nested.h.
#include "lease/sublease.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <unistd.h>
#include <utility>

#include "base/users.h"
#include "lease/gpu_selection.h"
#include "lease/own_record.h"
#include "schedule/match.h"

namespace berth {
namespace {

// The GPUs of the outer lease that would do, in its order.
std::vector<std::string> candidates(const Snapshot& snapshot, const Record& outer,
                                    const Request& request) {
  std::vector<std::string> found;
  for (const std::string& uuid : outer.uuids) {
    for (const Gpu& gpu : snapshot.gpus) {
      if (gpu.uuid != uuid) continue;
      GpuCondition condition;
      condition.uuid = uuid;
      condition.name = gpu.name.value_or("");
      condition.memory = gpu.memory_total;
      if (schedule::matches(condition, request) && schedule::large_enough(condition, request)) {
        found.push_back(uuid);
      }
    }
  }
  return found;
}

// How many leases inside `outer` use the GPU.
long uses(const std::string& uuid, const std::string& outer, const std::vector<Record>& leases) {
  return std::count_if(leases.begin(), leases.end(), [&](const Record& lease) {
    return lease.within == outer &&
           std::find(lease.uuids.begin(), lease.uuids.end(), uuid) != lease.uuids.end();
  });
}

// Inside a lease that shares its GPUs, a request shares them too, and has no more of them.
Result<void> share_of(const Record& outer, Request& request) {
  if (!outer.request.memory) return {};
  if (!request.memory) request.memory = outer.request.memory;
  if (request.memory->count <= outer.request.memory->count) return {};
  return fail(
      ErrorKind::impossible,
      fmt::format("this runs inside the lease {}, which has {} of each GPU, and {} is asked "
                  "for; ask for less, or from outside of it (in a shell: unset BERTH_LEASE)",
                  outer.id, format_size(*outer.request.memory), format_size(*request.memory)));
}

}  // namespace

Result<std::optional<Record>> enclosing_lease(Harbour& harbour, const std::string& id) {
  if (!is_id(id)) return std::nullopt;
  auto transaction = harbour.begin(LockMode::shared, {});
  if (!transaction) return tl::make_unexpected(transaction.error());
  auto lease = (*transaction)->lease(id);
  if (!lease) return tl::make_unexpected(lease.error());
  if (!*lease) return std::nullopt;
  Record record = std::move((*lease)->record);
  if (record.uid != ::geteuid() && !is_root()) {
    transaction->reset();  // the host's user directory may be slow
    return fail(
        ErrorKind::permission,
        fmt::format("BERTH_LEASE names the lease {}, which belongs to {}; unset BERTH_LEASE", id,
                    user_name(record.uid)));
  }
  return record;
}

Result<std::vector<std::string>> choose_within(const Record& outer,
                                               const std::vector<Record>& leases,
                                               const Request& request, const Snapshot& snapshot) {
  auto found = candidates(snapshot, outer, request);
  const std::size_t count = request.count;
  if (found.size() < count) {
    return fail(ErrorKind::impossible,
                fmt::format("this runs inside the lease {}, of whose {} {} {} would do, and {} "
                            "{} asked for; ask for fewer, or from outside of it (in a shell: unset "
                            "BERTH_LEASE)",
                            outer.id, outer.uuids.size(), outer.uuids.size() == 1 ? "GPU" : "GPUs",
                            found.size(), count, count == 1 ? "is" : "are"));
  }
  std::stable_sort(found.begin(), found.end(), [&](const std::string& a, const std::string& b) {
    return uses(a, outer.id, leases) < uses(b, outer.id, leases);
  });
  found.resize(count);
  return found;
}

Result<Lease> acquire_within(Probe& probe, Harbour harbour, const Record& outer, const AcquireRequest& ask) {
  auto snapshot = probe.snapshot();
  if (!snapshot) return tl::make_unexpected(snapshot.error());
  auto bell = harbour.make_bell();
  if (!bell) return tl::make_unexpected(bell.error());
  Record record = make_record(ask, bell->id);
  record.within = outer.id;
  std::unique_ptr<Transaction> transaction;
  const auto give_up = [&](Error error) {
    transaction.reset();  // the lock must not be held while Redis is asked
    harbour.remove(record.id, std::nullopt);
    return tl::make_unexpected(std::move(error));
  };
  if (auto chosen = restrict_choice(record.request, ask, snapshot->gpus); !chosen) {
    return give_up(chosen.error());
  }
  if (ask.selector) narrow(record.request, ask.selector());
  if (auto shared = share_of(outer, record.request); !shared) return give_up(shared.error());
  record.directory_id = harbour.directory_id();
  for (;;) {
    auto begun = harbour.begin(LockMode::exclusive, {}, record.id);
    if (!begun) return give_up(begun.error());
    transaction = std::move(*begun);
    const auto clients = transaction->leases();
    if (!clients) return give_up(clients.error());
    std::vector<Record> leases;
    for (const Client& client : *clients) leases.push_back(client.record);
    const bool alive = std::any_of(leases.begin(), leases.end(),
                                   [&](const Record& lease) { return lease.id == outer.id; });
    if (!alive) {
      return give_up(
          {ErrorKind::not_granted,
           fmt::format("the lease {}, inside which this was to run, has just ended; unset "
                       "BERTH_LEASE to ask the queue",
                       outer.id)});
    }
    auto chosen = choose_within(outer, leases, record.request, *snapshot);
    if (!chosen) return give_up(chosen.error());
    record.uuids = std::move(*chosen);
    // Later than the outer lease even if the clock was set back: else this one would count on its
    // own.
    record.granted = std::max<TimePoint>(std::chrono::system_clock::now(),
                                         outer.granted + std::chrono::milliseconds(1));
    record.epoch = transaction->next_epoch();
    std::optional<TicketName> no_ticket;
    auto written = write_own(harbour, *transaction, record, bell->fd, no_ticket,
                             [&] { return transaction->write_lease(record); });
    if (!written) return give_up(written.error());
    const auto done = transaction->commit();
    if (!done) return give_up(done.error());
    if (*done) break;
  }
  transaction.reset();
  return Lease(std::move(harbour), std::move(record), std::move(bell->fd).shared(),
               std::move(snapshot->gpus));
}

}  // namespace berth
