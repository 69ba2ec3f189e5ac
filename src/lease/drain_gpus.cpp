// Writes and removes drains; see drain_gpus.h.
#include "lease/drain_gpus.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <unistd.h>
#include <utility>

#include "base/text.h"
#include "base/users.h"
#include "harbour/harbour.h"
#include "lease/gpu_list.h"

namespace berth {
namespace {

// Call without the lock: user_name() may be slow.
tl::unexpected<Error> make_permission_error(const Harbour& harbour, uid_t owner) {
  return fail(ErrorKind::permission,
              fmt::format("only root{} can drain and undrain GPUs",
                          owner == 0 ? std::string()
                                     : fmt::format(" and {}, the owner of {},", user_name(owner),
                                                   in_quotes(harbour.location().path))));
}

struct DrainTransaction {
  Harbour harbour;
  std::unique_ptr<Transaction> transaction;
};

Result<DrainTransaction> begin_drain_transaction(Harbour harbour, LockMode mode) {
  std::unique_ptr<Transaction> transaction = TRY(begin_to_ring_front(harbour, mode));
  const uid_t owner = TRY(transaction->harbour_owner());
  // The drain of any other user would not count.
  if (!is_root() && ::geteuid() != owner) {
    transaction.reset();
    return make_permission_error(harbour, owner);
  }
  return DrainTransaction{std::move(harbour), std::move(transaction)};
}

Result<std::optional<DrainTransaction>> begin_in_existing_harbour(LockMode mode) {
  std::optional<Harbour> harbour = TRY(Harbour::open_existing());
  if (!harbour) return std::nullopt;
  return TRY(begin_drain_transaction(std::move(*harbour), mode));
}

bool holds_any(const Record& lease, const std::vector<std::string>& uuids) {
  return lease.holds_all_gpus ||
         std::any_of(lease.uuids.begin(), lease.uuids.end(), [&](const std::string& uuid) {
           return std::find(uuids.begin(), uuids.end(), uuid) != uuids.end();
         });
}

// The leases that stay on these GPUs; nothing if another client changed the harbour first, and
// nothing was written.
Result<std::optional<std::vector<Record>>> try_drain(Transaction& transaction,
                                                     const std::vector<std::string>& uuids,
                                                     const std::string& reason) {
  std::vector<Client> leases = TRY(transaction.read_leases());
  TRY(transaction.ring_front());  // the first waiting clients then show the drain as their reason
  const TimePoint now = std::chrono::system_clock::now();
  for (const std::string& uuid : uuids) {
    TRY(transaction.write_drain({uuid, ::geteuid(), reason, now}));
  }
  if (!TRY(transaction.commit())) return std::nullopt;
  std::vector<Record> remaining_leases;
  for (Client& lease : leases) {
    if (holds_any(lease.record, uuids)) remaining_leases.push_back(std::move(lease.record));
  }
  return remaining_leases;
}

}  // namespace

Result<std::vector<Record>> drain_gpus(const std::vector<std::string>& uuids,
                                       const std::string& reason) {
  for (;;) {
    DrainTransaction open = TRY(begin_drain_transaction(TRY(Harbour::open()), LockMode::exclusive));
    auto remaining_leases = TRY(try_drain(*open.transaction, uuids, reason));
    if (remaining_leases) return std::move(*remaining_leases);
  }
}

Result<std::vector<Drain>> read_removable_drains() {
  const std::optional<DrainTransaction> open = TRY(begin_in_existing_harbour(LockMode::shared));
  if (!open) return std::vector<Drain>{};
  return open->transaction->read_drains();
}

Result<void> undrain_gpus(const std::vector<std::string>& uuids) {
  for (;;) {
    const std::optional<DrainTransaction> open =
        TRY(begin_in_existing_harbour(LockMode::exclusive));
    if (!open) return {};
    // Rings first: the rung client waits for the lock, and decides even if this process is killed
    // half-way.
    TRY(open->transaction->ring_front());
    for (const std::string& uuid : uuids) TRY(open->transaction->remove_drain(uuid));
    if (TRY(open->transaction->commit())) return {};
  }
}

Result<std::string> find_drained_gpu(const std::vector<Drain>& drains, const std::string& start) {
  std::vector<std::string> found;
  for (const Drain& drain : drains) {
    if (!uuid_starts_with(drain.uuid, start)) continue;
    if (drain.uuid.size() == start.size()) return drain.uuid;
    found.push_back(drain.uuid);
  }
  if (found.size() > 1) {
    return fail(ErrorKind::usage, fmt::format("{} matches {} and {}; write more of the UUID",
                                              in_quotes(start), found[0], found[1]));
  }
  return found.empty() ? std::string() : found.front();
}

}  // namespace berth
