// Draining and undraining; see service.h.
#include "lease/drain.h"

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
#include "lease/gpu_selection.h"

namespace berth {
namespace {

// Without the lock: the host's user directory may be slow.
tl::unexpected<Error> make_permission_error(const Harbour& harbour, uid_t owner) {
  return fail(ErrorKind::permission,
              fmt::format("only root{} may take GPUs out of service and back",
                          owner == 0 ? std::string()
                                     : fmt::format(" and {}, the owner of {},", user_name(owner),
                                                   in_quotes(harbour.location().path))));
}

struct DrainTransaction {
  Harbour harbour;
  std::unique_ptr<Transaction> transaction;
};

Result<DrainTransaction> begin_drain_transaction(Harbour harbour, LockMode mode) {
  auto stopped = find_stopped_processes(harbour);
  if (!stopped) return tl::make_unexpected(stopped.error());
  auto transaction = harbour.begin(mode, {});
  if (!transaction) return tl::make_unexpected(transaction.error());
  (*transaction)->set_stopped_processes(std::move(*stopped));
  const auto owner = (*transaction)->harbour_owner();
  if (!owner) return tl::make_unexpected(owner.error());
  // A drain of another user would not count.
  if (!is_root() && ::geteuid() != *owner) {
    transaction->reset();
    return make_permission_error(harbour, *owner);
  }
  return DrainTransaction{std::move(harbour), std::move(*transaction)};
}

Result<std::optional<DrainTransaction>> begin_in_existing_harbour(LockMode mode) {
  auto harbour = Harbour::open_existing();
  if (!harbour) return tl::make_unexpected(harbour.error());
  if (!*harbour) return std::nullopt;
  auto open = begin_drain_transaction(std::move(**harbour), mode);
  if (!open) return tl::make_unexpected(open.error());
  return std::move(*open);
}

bool holds_any(const Record& lease, const std::vector<std::string>& uuids) {
  return lease.holds_all_gpus ||
         std::any_of(lease.uuids.begin(), lease.uuids.end(), [&](const std::string& uuid) {
           return std::find(uuids.begin(), uuids.end(), uuid) != uuids.end();
         });
}

// The leases that stay on these GPUs; nothing if somebody was faster, and nothing has changed.
Result<std::optional<std::vector<Record>>> try_drain(Transaction& transaction,
                                                     const std::vector<std::string>& uuids,
                                                     const std::string& reason) {
  auto leases = transaction.read_leases();
  if (!leases) return tl::make_unexpected(leases.error());
  // Whoever waits first says why from now on.
  if (auto rung = transaction.ring_front(); !rung) return tl::make_unexpected(rung.error());
  const TimePoint now = std::chrono::system_clock::now();
  for (const std::string& uuid : uuids) {
    if (auto written = transaction.write_drain({uuid, ::geteuid(), reason, now}); !written) {
      return tl::make_unexpected(written.error());
    }
  }
  auto done = transaction.commit();
  if (!done) return tl::make_unexpected(done.error());
  if (!*done) return std::nullopt;
  std::vector<Record> remaining_leases;
  for (Client& lease : *leases) {
    if (holds_any(lease.record, uuids)) remaining_leases.push_back(std::move(lease.record));
  }
  return remaining_leases;
}

}  // namespace

Result<std::vector<Record>> drain_gpus(const std::vector<std::string>& uuids,
                                       const std::string& reason) {
  for (;;) {
    auto harbour = Harbour::open();
    if (!harbour) return tl::make_unexpected(harbour.error());
    auto open = begin_drain_transaction(std::move(*harbour), LockMode::exclusive);
    if (!open) return tl::make_unexpected(open.error());
    auto remaining_leases = try_drain(*open->transaction, uuids, reason);
    if (!remaining_leases) return tl::make_unexpected(remaining_leases.error());
    if (*remaining_leases) return std::move(**remaining_leases);
  }
}

Result<std::vector<Drain>> read_removable_drains() {
  auto open = begin_in_existing_harbour(LockMode::shared);
  if (!open) return tl::make_unexpected(open.error());
  if (!*open) return std::vector<Drain>{};
  return (*open)->transaction->read_drains();
}

Result<void> undrain_gpus(const std::vector<std::string>& uuids) {
  for (;;) {
    auto open = begin_in_existing_harbour(LockMode::exclusive);
    if (!open) return tl::make_unexpected(open.error());
    if (!*open) return {};
    // Rung first: it waits for our lock, and decides even if we are killed half-way.
    if (auto rung = (*open)->transaction->ring_front(); !rung) return rung;
    for (const std::string& uuid : uuids) {
      if (auto removed = (*open)->transaction->remove_drain(uuid); !removed) {
        return tl::make_unexpected(removed.error());
      }
    }
    const auto done = (*open)->transaction->commit();
    if (!done) return tl::make_unexpected(done.error());
    if (*done) return {};
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
    return fail(ErrorKind::usage, fmt::format("{} could be {} or {}; write more of it",
                                              in_quotes(start), found[0], found[1]));
  }
  return found.empty() ? std::string() : found.front();
}

}  // namespace berth
