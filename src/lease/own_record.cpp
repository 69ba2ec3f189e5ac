// Finding a name that nobody planted; see own_record.h.
#include "lease/own_record.h"

#include <utility>

namespace berth {

Result<void> write_own_record(Harbour& harbour, Transaction& transaction, Record& record,
                              PrivateFd& bell, std::optional<TicketName>& ticket,
                              const std::function<Result<void>()>& write) {
  constexpr int kMaxAttempts = 16;
  for (int i = 0;; ++i) {
    auto written = write();
    if (written || !transaction.has_name_conflict() || i == kMaxAttempts) return written;
    auto other = harbour.make_bell();
    if (!other) return tl::make_unexpected(other.error());
    // Not harbour.remove(): that may wait for Redis, and the lock is held.
    harbour.remove_client_files(record.id, ticket);
    transaction.remove_old_id(record.id);
    ticket.reset();
    record.id = std::move(other->id);
    bell = std::move(other->fd);
  }
}

}  // namespace berth
