// Rewrites the record of a lease with a later end; see extend.h.
#include "lease/extend.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>

#include "base/text.h"
#include "base/users.h"
#include "harbour/harbour.h"

namespace berth {
namespace {

constexpr std::chrono::hours kMaxRunTime(24 * 3650);

Error no_such_lease_error(const std::string& id) {
  return {ErrorKind::usage,
          fmt::format("there is no running job {}; 'berth jobs' lists yours", in_quotes(id))};
}

// The run time of the request, counted from the grant, after which the lease ends `time` later.
std::chrono::nanoseconds extended_time(const Record& lease, std::chrono::nanoseconds time) {
  const TimePoint now = std::chrono::system_clock::now();
  const auto announced = lease.time_is_estimated ? std::nullopt : lease.expected_end();
  const TimePoint begin = std::max(announced.value_or(now), now);
  return begin + time - lease.granted;
}

}  // namespace

Result<Record> extend_lease(const std::string& id, std::chrono::nanoseconds time) {
  std::optional<Harbour> harbour = TRY(Harbour::open_existing());
  if (!harbour || !is_id(id)) return tl::make_unexpected(no_such_lease_error(id));
  std::unique_ptr<Transaction> transaction =
      TRY(begin_to_ring_front(*harbour, LockMode::exclusive));
  std::optional<Client> lease = TRY(transaction->read_lease(id));
  if (!lease || transaction->is_ended(id, std::nullopt))
    return tl::make_unexpected(no_such_lease_error(id));
  Record record = std::move(lease->record);
  if (record.uid != ::geteuid()) {
    transaction.reset();  // drops the lock: user_name() may be slow
    const std::string owner = user_name(record.uid);
    return fail(ErrorKind::permission,
                fmt::format("lease {} belongs to {}; only {} can extend it", id, owner, owner));
  }
  // A record that was not read completely must not be written.
  if (!record.problem.empty() || record.version != kProtocolVersion) {
    return fail(ErrorKind::io,
                fmt::format("lease {} cannot be extended, since its record cannot be "
                            "read completely: {}",
                            id,
                            record.problem.empty() ? "it is of a later version of Berth"
                                                   : printable(record.problem)));
  }
  // The sum of times would overflow if `time` were not checked first.
  const bool usable = time > std::chrono::nanoseconds::zero() && time <= kMaxRunTime;
  const auto total = usable ? extended_time(record, time) : time;
  if (!usable || total > kMaxRunTime) {
    return fail(ErrorKind::usage,
                "the new end is not within ten years; write a duration such as 2h");
  }
  record.request.time = std::chrono::ceil<std::chrono::seconds>(total);
  record.time_is_estimated = false;
  TRY(transaction->replace_lease(record));
  TRY(transaction->ring_front());  // the waiting clients show the new end
  // It rests on nothing that another client can change, so that it cannot lose a race.
  TRY(transaction->commit());
  return record;
}

}  // namespace berth
