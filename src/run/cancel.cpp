// Finds tickets, leases and detached jobs by id or label, and ends them; see cancel.h.
#include "run/cancel.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <unistd.h>
#include <utility>

#include "base/process.h"
#include "base/quantity.h"
#include "base/text.h"
#include "base/users.h"
#include "cluster/store/hosts.h"
#include "harbour/harbour.h"
#include "lease/cancel_and_release.h"
#include "status/status.h"

namespace berth {
namespace {

// Everything that can be cancelled on this host.
struct Candidates {
  std::vector<Record> tickets;
  std::vector<Record> leases;
  std::vector<DetachedJob> jobs;  // of this user
};

// What is ended. A detached job appears once, as a job, and not as its ticket or lease.
struct Targets {
  std::vector<std::string> tickets;
  std::vector<std::string> shell_leases;
  std::vector<JobToEnd> jobs;
  std::vector<CancelledJob> in_order;
};

Result<Candidates> read_candidates() {
  Candidates found;
  if (auto harbour = TRY(Harbour::open_existing())) {
    HarbourContents contents = TRY(read_contents(*harbour));
    found.tickets = std::move(contents.tickets);
    found.leases = std::move(contents.leases);
  }
  if (auto jobs = list_jobs()) found.jobs = std::move(*jobs);  // a user without a home has none
  return found;
}

const Record* find_record(const std::vector<Record>& records, const std::string& id) {
  const auto found =
      std::find_if(records.begin(), records.end(), [&](const Record& one) { return one.id == id; });
  return found == records.end() ? nullptr : &*found;
}

// The live detached job that has the ticket or lease `id`, or is called so. Its berth process may
// have been killed while its processes still hold the lease.
const DetachedJob* find_detached(const Candidates& candidates, const std::string& id,
                                 bool by_line = false) {
  const auto has_id = [&](const DetachedJob& job) {
    // The lease of a line of a batch is a job of its own, as for `berth wait`.
    return job.spec.id == id || ((by_line || job.spec.kind == JobKind::run) &&
                                 std::any_of(job.grants.begin(), job.grants.end(),
                                             [&](const JobGrant& one) { return one.lease == id; }));
  };
  const auto found = std::find_if(candidates.jobs.rbegin(), candidates.jobs.rend(), has_id);
  return found == candidates.jobs.rend() ? nullptr : &*found;
}

// The leases that the detached job has now; more than one only of a batch.
std::vector<Record> find_leases_of(const Candidates& candidates, const DetachedJob& job) {
  std::vector<std::string> ids;
  if (job.grants.empty()) {
    // Before the grant is recorded, and if its process was killed then, the lease has the job's id.
    ids = {job.spec.id};
  } else if (job.spec.kind == JobKind::run) {
    ids = {job.grants.back().lease};
  } else {
    for (const JobGrant& grant : job.grants) ids.push_back(grant.lease);
  }
  std::vector<Record> leases;
  for (const std::string& id : ids) {
    const Record* const lease = find_record(candidates.leases, id);
    if (lease != nullptr && lease->uid == ::geteuid()) leases.push_back(*lease);
  }
  return leases;
}

bool has_target(const Targets& targets, const std::string& id) {
  return std::any_of(targets.in_order.begin(), targets.in_order.end(),
                     [&](const CancelledJob& one) { return one.id == id; });
}

// A detached job that waits in the queue is cancelled by its ticket: it then knows why it ends.
bool has_ticket(const Candidates& candidates, const DetachedJob& job) {
  const Record* const ticket = find_record(candidates.tickets, job.spec.id);
  return ticket != nullptr && ticket->uid == ::geteuid();
}

void add_detached(Targets& targets, const Candidates& candidates, const DetachedJob& job) {
  const std::string& id = job.spec.id;
  if (has_target(targets, id)) return;
  if (has_ticket(candidates, job)) {
    targets.in_order.push_back({id, CancelKind::ticket});
    targets.tickets.push_back(id);
    return;
  }
  std::vector<Record> leases = find_leases_of(candidates, job);
  // The batch was killed: its lines are ended one by one.
  if (job.spec.kind == JobKind::batch && !job.is_alive) {
    for (const Record& lease : leases) {
      if (has_target(targets, lease.id)) continue;
      targets.in_order.push_back({lease.id, CancelKind::job});
      targets.jobs.push_back({lease.id, {lease}});
    }
    return;
  }
  targets.in_order.push_back(
      {id, CancelKind::job, {}, leases.empty() && job.spec.kind == JobKind::run});
  targets.jobs.push_back({id, std::move(leases), job});
}

void add_record(Targets& targets, const Record& record, bool is_ticket) {
  if (has_target(targets, record.id)) return;
  if (is_ticket) {
    targets.in_order.push_back({record.id, CancelKind::ticket});
    targets.tickets.push_back(record.id);
  } else if (record.holder == HolderKind::shell && !record.adopted_start) {
    targets.in_order.push_back({record.id, CancelKind::shell_lease});
    targets.shell_leases.push_back(record.id);
  } else {
    targets.in_order.push_back({record.id, CancelKind::job});
    targets.jobs.push_back({record.id, {record}});
  }
}

bool is_active(const Candidates& candidates, const DetachedJob& job) {
  return job.is_alive || !find_leases_of(candidates, job).empty();
}

Error not_found_error(const Candidates& candidates, const std::string& id) {
  if (find_detached(candidates, id) != nullptr)
    return {ErrorKind::usage, fmt::format("job {} has ended already", id)};
  return {ErrorKind::usage, fmt::format("there is no job, ticket or lease {}; 'berth jobs' lists "
                                        "yours",
                                        in_quotes(id))};
}

Error permission_error(const Record& record, bool is_ticket) {
  const std::string owner = owner_or_root(record.uid);
  return {ErrorKind::permission, is_ticket
                                     ? fmt::format("ticket {} belongs to {}; only {} can cancel it",
                                                   record.id, user_name(record.uid), owner)
                                     : fmt::format("lease {} belongs to {}; only {} can end it",
                                                   record.id, user_name(record.uid), owner)};
}

Result<void> add_by_id(Targets& targets, const Candidates& candidates, const std::string& id) {
  const DetachedJob* const job = find_detached(candidates, id);
  if (job != nullptr && is_active(candidates, *job)) {
    add_detached(targets, candidates, *job);
    return {};
  }
  const Record* const ticket = find_record(candidates.tickets, id);
  const Record* const record = ticket != nullptr ? ticket : find_record(candidates.leases, id);
  if (record == nullptr) return tl::make_unexpected(not_found_error(candidates, id));
  if (record->uid != ::geteuid() && !is_root())
    return tl::make_unexpected(permission_error(*record, ticket != nullptr));
  add_record(targets, *record, ticket != nullptr);
  return {};
}

void add_by_selection(Targets& targets, const Candidates& candidates,
                      const CancelSelection& selection) {
  const bool of_all_users = selection.all && is_root();
  const auto is_wanted = [&](uid_t uid, const std::string& label) {
    return (of_all_users || uid == ::geteuid()) &&
           (selection.label.empty() || label == selection.label);
  };
  for (const DetachedJob& job : candidates.jobs) {
    const bool is_waiting = job.grants.empty() && job.spec.kind == JobKind::run;
    const auto& elsewhere = selection.elsewhere;
    if (std::find(elsewhere.begin(), elsewhere.end(), job.spec.id) != elsewhere.end()) continue;
    if (is_active(candidates, job) && is_wanted(::geteuid(), job.spec.label) &&
        (is_waiting || !selection.only_waiting)) {
      add_detached(targets, candidates, job);
    }
  }
  for (const bool is_ticket : {true, false}) {
    if (!is_ticket && selection.only_waiting) continue;
    for (const Record& record : is_ticket ? candidates.tickets : candidates.leases) {
      const DetachedJob* const job =
          record.uid == ::geteuid() ? find_detached(candidates, record.id, true) : nullptr;
      if (job != nullptr && is_active(candidates, *job)) continue;
      // A lease inside another one ends with the job that has made it.
      if (is_wanted(record.uid, record.label) && record.parent_lease.empty())
        add_record(targets, record, is_ticket);
    }
  }
}

void set_end(Targets& targets, const std::string& id, JobEndResult end) {
  for (CancelledJob& one : targets.in_order) {
    if (one.id == id) one.end = end;
  }
}

// An adopted process that has ended, while its keeper does not notice (it is stopped) or the record
// was made by hand: without a process to end, the lease is released like that of a shell.
Result<void> release_without_process(Targets& targets) {
  std::vector<std::string> ids;
  for (const JobToEnd& job : targets.jobs) {
    const bool is_adopted = job.leases.size() == 1 && job.leases.front().adopted_start &&
                            job.leases.front().holder == HolderKind::shell;
    const auto ended = std::find_if(targets.in_order.begin(), targets.in_order.end(),
                                    [&](const CancelledJob& one) {
                                      return one.id == job.id && one.end == JobEndResult::invisible;
                                    });
    if (!is_adopted || ended == targets.in_order.end()) continue;
    if (job.leases.front().pid_namespace != pid_namespace() && !is_root()) continue;
    ended->kind = CancelKind::shell_lease;
    ids.push_back(job.id);
  }
  if (ids.empty() || release_leases(ids, {})) return {};
  // One of them has ended meanwhile.
  for (const std::string& id : ids) {
    const auto released = release_leases({id}, {});
    if (!released && released.error().kind != ErrorKind::usage)
      return tl::make_unexpected(released.error());
  }
  return {};
}

Result<Targets> find_targets(const CancelSelection& selection) {
  const Candidates candidates = TRY(read_candidates());
  Targets targets;
  for (const std::string& id : selection.ids) TRY(add_by_id(targets, candidates, id));
  if (selection.all || selection.mine || !selection.label.empty())
    add_by_selection(targets, candidates, selection);
  return targets;
}

// A ticket may be granted, or leave the queue, after it was found. Then everything is found again.
Result<Targets> find_targets_and_cancel_tickets(const CancelSelection& selection) {
  constexpr int kMaxAttempts = 5;
  for (int attempt = 1;; ++attempt) {
    Targets targets = TRY(find_targets(selection));
    if (targets.tickets.empty()) return targets;
    const auto cancelled = cancel_tickets(targets.tickets);
    if (cancelled) return targets;
    if (cancelled.error().kind != ErrorKind::usage || attempt == kMaxAttempts)
      return tl::make_unexpected(cancelled.error());
  }
}

}  // namespace

bool is_done(const CancelledJob& job) {
  return job.kind != CancelKind::job || job.end == JobEndResult::ended ||
         job.end == JobEndResult::killed;
}

std::string describe_end(const CancelledJob& job, std::chrono::nanoseconds grace) {
  if (job.kind == CancelKind::ticket) return fmt::format("ticket {} is cancelled", job.id);
  if (job.kind == CancelKind::shell_lease) return fmt::format("lease {} is released", job.id);
  switch (job.end) {
    case JobEndResult::ended:
      return fmt::format("job {} {}", job.id, job.was_waiting ? "is cancelled" : "has ended");
    case JobEndResult::killed:
      return fmt::format("job {} did not end within {} and was killed", job.id,
                         format_duration(grace));
    case JobEndResult::refused:
      return fmt::format("job {} runs as another user; ask an administrator to end it", job.id);
    case JobEndResult::invisible:
      return fmt::format(
          "job {} has no processes that are visible here; end it in its container, or as root",
          job.id);
    case JobEndResult::alive:
      break;
  }
  return fmt::format(
      "job {} does not end even by SIGKILL: a process of it runs as another user, or hangs in the "
      "kernel (see dmesg)",
      job.id);
}

Result<std::vector<CancelledJob>> cancel(const CancelSelection& selection,
                                         std::chrono::nanoseconds grace, const OnSlowEnd& on_slow) {
  Targets targets = TRY(find_targets_and_cancel_tickets(selection));
  if (!targets.shell_leases.empty()) TRY(release_leases(targets.shell_leases, {}));
  // The waiting ones first: they would be granted the GPUs of those that run.
  for (const bool waiting : {true, false}) {
    std::vector<JobToEnd> jobs;
    for (const JobToEnd& job : targets.jobs) {
      if (waiting == job.leases.empty()) jobs.push_back(job);
    }
    const std::vector<JobEndResult> ends = end_jobs(jobs, grace, on_slow);
    for (std::size_t i = 0; i < ends.size(); ++i) set_end(targets, jobs[i].id, ends[i]);
  }
  TRY(release_without_process(targets));
  return std::move(targets.in_order);
}

}  // namespace berth
