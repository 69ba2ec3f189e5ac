// Checks actions and words their questions; see pending_action.h.
#include "top/pending_action.h"

#include <fmt/format.h>
#include <vector>

#include "base/quantity.h"
#include "base/text.h"
#include "base/users.h"
#include "run/cancel.h"
#include "status/status_format.h"

namespace berth::top {
namespace {

bool can_end(const Record& record, uid_t viewer) {
  return record.uid == viewer || viewer == 0;
}

// " of bob", if root acts on the record of another user; otherwise "".
std::string owner_suffix(const Record& record, uid_t viewer) {
  return record.uid == viewer ? "" : fmt::format(" of {}", user_name(record.uid));
}

std::string title_suffix(const Record& record) {
  const std::string& title = record_title(record);
  return title.empty() ? "" : fmt::format(" ({})", truncate_text(printable(title), 60));
}

Result<void> check_permission(const char* what, const char* verb, const Record& record,
                              const Status& host, uid_t viewer) {
  if (!can_end(record, viewer)) {
    return fail(ErrorKind::permission,
                fmt::format("{} {} belongs to {}; only {} can {} it", what, record.id,
                            user_name(record.uid), owner_or_root(record.uid), verb));
  }
  if (host.is_remote) {
    return fail(ErrorKind::usage, fmt::format("{} {} is on host {}; run there: berth {} {}", what,
                                              record.id, host.host, verb, record.id));
  }
  return {};
}

// The lease of the row. On the row of a GPU: the viewer's only lease there, or the only lease.
Result<const Record*> find_lease(const Row& row, uid_t viewer) {
  if (row.lease != nullptr) return row.lease;
  std::vector<const Record*> all;
  std::vector<const Record*> own;
  for (const Record& lease : row.host->leases) {
    if (!row.gpu->view.has_lease(lease.id)) continue;
    all.push_back(&lease);
    if (lease.uid == viewer) own.push_back(&lease);
  }
  const std::string index = berth::to_string(row.gpu->view.gpu.index);
  if (all.empty()) {
    return fail(ErrorKind::usage, fmt::format("there is no lease on GPU {}", index));
  }
  if (own.size() == 1) return own.front();
  if (all.size() == 1) return all.front();
  if (own.empty()) {
    return fail(ErrorKind::permission, fmt::format("you have no lease on GPU {}", index));
  }
  return fail(ErrorKind::usage,
              fmt::format("you have {} leases on GPU {}: select one of the rows below it",
                          own.size(), index));
}

Result<PendingAction> make_end_action(const Row& row, uid_t viewer) {
  const Record& record = *TRY(find_lease(row, viewer));
  TRY(check_permission("lease", "cancel", record, *row.host, viewer));
  if (record.holder == HolderKind::shell && !record.adopted_start)
    return fail(ErrorKind::usage, "this is the lease of a shell; press r to release it");
  return PendingAction{
      PendingAction::Kind::end_job, record.id,
      fmt::format("End job {}{}{}? Its processes get SIGTERM, and SIGKILL if they still run after "
                  "{}.",
                  record.id, owner_suffix(record, viewer), title_suffix(record),
                  format_duration(kDefaultGrace))};
}

}  // namespace

std::string format_lease_gpus(const Record& lease, const Status& host) {
  std::string names;
  for (const std::string& uuid : lease.uuids) {
    std::string name = uuid;
    for (const GpuStatus& one : host.gpus) {
      if (one.view.gpu.uuid == uuid) name = berth::to_string(one.view.gpu.index);
    }
    names += (names.empty() ? "" : ",") + name;
  }
  return names;
}

Result<PendingAction> make_cancel_action(const Row& row, uid_t viewer) {
  if (row.ticket == nullptr && row.gpu == nullptr)
    return fail(ErrorKind::usage, "c cancels a ticket or ends a job: select one");
  if (row.ticket == nullptr) return make_end_action(row, viewer);
  const Record& record = row.ticket->record;
  TRY(check_permission("ticket", "cancel", record, *row.host, viewer));
  return PendingAction{
      PendingAction::Kind::cancel, record.id,
      fmt::format(
          "Cancel ticket {}{}{}? The ticket leaves the queue, and its process (pid {}) exits "
          "with code 75.",
          record.id, owner_suffix(record, viewer), title_suffix(record), record.pid)};
}

Result<PendingAction> make_release_action(const Row& row, uid_t viewer) {
  if (row.gpu == nullptr) {
    return fail(ErrorKind::usage, row.ticket == nullptr
                                      ? "r releases a lease: select one"
                                      : "this is a ticket, not a lease; press c to cancel it");
  }
  const Record& record = *TRY(find_lease(row, viewer));
  TRY(check_permission("lease", "release", record, *row.host, viewer));
  if (record.holder == HolderKind::job) {
    return fail(ErrorKind::usage,
                fmt::format("lease {} is held by a job; press c to end the job", record.id));
  }
  return PendingAction{
      PendingAction::Kind::release, record.id,
      fmt::format("Release lease {}{}{}? Other users can be granted {} at once; the {} (pid {}) "
                  "keeps running without the lease.",
                  record.id, owner_suffix(record, viewer), title_suffix(record),
                  gpu_list(format_lease_gpus(record, *row.host)),
                  record.adopted_start ? "process" : "shell", record.pid)};
}

}  // namespace berth::top
