// Selects the GPUs of a lease inside a lease and writes it; see sublease.h.
#include "lease/sublease.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <unistd.h>
#include <utility>

#include "base/environment.h"
#include "base/users.h"
#include "lease/gpu_list.h"
#include "lease/own_record.h"
#include "schedule/match.h"

namespace berth {
namespace {

// The GPUs of the outer lease that match the request, in the order of that lease.
std::vector<std::string> find_matching_gpus(const Snapshot& snapshot, const Record& parent,
                                            const Request& request) {
  std::vector<std::string> found;
  for (const std::string& uuid : parent.uuids) {
    const Gpu* const gpu = find_gpu(snapshot.gpus, uuid);
    if (gpu == nullptr) continue;
    GpuCondition condition;
    condition.uuid = uuid;
    condition.name = gpu->name.value_or("");
    condition.memory = gpu->memory_total;
    if (schedule::is_suitable(condition, request)) found.push_back(uuid);
  }
  return found;
}

// How many leases inside `parent` use the GPU.
long count_subleases_on(const std::string& uuid, const std::string& parent,
                        const std::vector<Record>& leases) {
  return std::count_if(leases.begin(), leases.end(), [&](const Record& lease) {
    return lease.parent_lease == parent &&
           std::find(lease.uuids.begin(), lease.uuids.end(), uuid) != lease.uuids.end();
  });
}

// Inside a lease that shares its GPUs, a request shares them, too, and cannot reserve more memory
// than that lease has.
Result<void> inherit_memory_limit(const Record& parent, Request& request) {
  if (!parent.request.memory) return {};
  if (!request.memory) request.memory = parent.request.memory;
  if (request.memory->count <= parent.request.memory->count) return {};
  return fail(
      ErrorKind::impossible,
      fmt::format(
          "this runs inside lease {}, which has {} on each GPU, {} requested; request less, or, {}",
          parent.id, format_size(*parent.request.memory), format_size(*request.memory),
          kOutsideLeaseRemedy));
}

}  // namespace

Result<std::optional<Record>> find_parent_lease(Harbour& harbour, const std::string& id) {
  if (!is_id(id)) return std::nullopt;
  std::unique_ptr<Transaction> transaction = TRY(harbour.begin(LockMode::shared, {}));
  std::optional<Client> lease = TRY(transaction->read_lease(id));
  if (!lease) return std::nullopt;
  Record record = std::move(lease->record);
  if (record.uid != ::geteuid() && !is_root()) {
    transaction.reset();  // drops the lock: user_name() may be slow
    return fail(ErrorKind::permission,
                fmt::format("BERTH_LEASE names lease {}, which belongs to {}; unset "
                            "BERTH_LEASE and CUDA_VISIBLE_DEVICES",
                            id, user_name(record.uid)));
  }
  return record;
}

bool runs_inside_lease() {
  const std::string id(get_env_or_empty("BERTH_LEASE"));
  if (!is_id(id)) return false;
  auto harbour = Harbour::open_existing();
  if (!harbour || !*harbour) return false;
  const auto parent = find_parent_lease(**harbour, id);
  return parent && *parent;
}

Result<std::vector<std::string>> select_parent_gpus(const Record& parent,
                                                    const std::vector<Record>& leases,
                                                    const Request& request,
                                                    const Snapshot& snapshot) {
  auto found = find_matching_gpus(snapshot, parent, request);
  const std::size_t count = request.count;
  if (found.size() < count) {
    return fail(
        ErrorKind::impossible,
        fmt::format(
            "this runs inside lease {}: {} of its {} {} {}, {} requested; request fewer, or, {}",
            parent.id, found.size(), parent.uuids.size(), parent.uuids.size() == 1 ? "GPU" : "GPUs",
            found.size() == 1 ? "matches" : "match", count, kOutsideLeaseRemedy));
  }
  std::stable_sort(found.begin(), found.end(), [&](const std::string& a, const std::string& b) {
    return count_subleases_on(a, parent.id, leases) < count_subleases_on(b, parent.id, leases);
  });
  found.resize(count);
  return found;
}

Result<Lease> acquire_sublease(Probe& probe, Harbour harbour, const Record& parent,
                               const AcquireRequest& request) {
  Snapshot snapshot = TRY(probe.snapshot());
  Harbour::OwnBell bell = TRY(harbour.make_bell());
  Record record = make_record(request, bell.id);
  record.parent_lease = parent.id;
  std::unique_ptr<Transaction> transaction;
  const auto fail_and_remove = [&](Error error) {
    transaction.reset();  // drops the lock: remove_client() may wait for Redis
    harbour.remove_client(record.id, std::nullopt);
    return tl::make_unexpected(std::move(error));
  };
  if (auto chosen = restrict_to_allowed_gpus(record.request, request, snapshot.gpus); !chosen) {
    return fail_and_remove(chosen.error());
  }
  if (request.selector) intersect_allowed_gpus(record.request, request.selector());
  if (auto shared = inherit_memory_limit(parent, record.request); !shared)
    return fail_and_remove(shared.error());
  record.directory_id = harbour.directory_id();
  for (;;) {
    auto begun = harbour.begin(LockMode::exclusive, {}, record.id);
    if (!begun) return fail_and_remove(begun.error());
    transaction = std::move(*begun);
    const auto clients = transaction->read_leases();
    if (!clients) return fail_and_remove(clients.error());
    std::vector<Record> leases;
    for (const Client& client : *clients) leases.push_back(client.record);
    const bool is_parent_alive = std::any_of(
        leases.begin(), leases.end(), [&](const Record& lease) { return lease.id == parent.id; });
    if (!is_parent_alive) {
      return fail_and_remove({ErrorKind::not_granted,
                              fmt::format("lease {}, which BERTH_LEASE names, has just ended; {}",
                                          parent.id, kOutsideLeaseRemedy)});
    }
    auto chosen = select_parent_gpus(parent, leases, record.request, snapshot);
    if (!chosen) return fail_and_remove(chosen.error());
    record.uuids = std::move(*chosen);
    // Later than the outer lease, even if the clock was set back: otherwise this lease would count
    // as one of its own, and take up the GPUs a second time.
    record.granted = std::max<TimePoint>(std::chrono::system_clock::now(),
                                         parent.granted + std::chrono::milliseconds(1));
    record.epoch = transaction->next_epoch();
    std::optional<TicketName> no_ticket;
    auto written = write_own_record(harbour, *transaction, record, bell.fd, no_ticket,
                                    [&] { return transaction->write_lease(record); });
    if (!written) return fail_and_remove(written.error());
    const auto done = transaction->commit();
    if (!done) return fail_and_remove(done.error());
    if (*done) break;
  }
  transaction.reset();
  return Lease(std::move(harbour), std::move(record), std::move(bell.fd).share(),
               std::move(snapshot.gpus));
}

}  // namespace berth
