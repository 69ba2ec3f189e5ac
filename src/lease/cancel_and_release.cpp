// Selects tickets and leases under the harbour's lock and ends them; see cancel_and_release.h.
#include "lease/cancel_and_release.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <memory>
#include <optional>
#include <unistd.h>
#include <utility>

#include "base/environment.h"
#include "base/process.h"
#include "base/text.h"
#include "base/users.h"
#include "cluster/store/hosts.h"
#include "harbour/harbour.h"
#include "lease/bell_holders.h"

namespace berth {
namespace {

// The harbour and its lock. Both are empty if there is no harbour.
struct LockedHarbour {
  std::optional<Harbour> harbour;
  std::unique_ptr<Transaction> transaction;
};

Result<LockedHarbour> lock_harbour() {
  LockedHarbour locked;
  locked.harbour = TRY(Harbour::open_existing());
  if (!locked.harbour) return locked;
  locked.transaction = TRY(begin_to_ring_front(*locked.harbour, LockMode::exclusive));
  return locked;
}

// Does not remove the records of dead clients. The next request for GPUs does: it also writes a
// history entry for each of them, which needs the list of this host's GPUs.
Result<std::vector<Record>> commit_and_unlock(LockedHarbour& locked, std::vector<Record> ended) {
  // The changes do not depend on anything that other clients may have changed, so that the commit
  // cannot lose a race.
  TRY(locked.transaction->commit());
  locked.transaction.reset();
  return ended;
}

bool is_own(const Record& record) {
  return record.uid == ::geteuid();
}

bool can_end(const Record& record) {
  return is_own(record) || is_root();
}

bool is_shell_lease(const Record& lease) {
  return lease.holder == HolderKind::shell;
}

void add_unique(std::vector<Record>& records, const Record& record) {
  const bool known = std::any_of(records.begin(), records.end(),
                                 [&](const Record& one) { return one.id == record.id; });
  if (!known) records.push_back(record);
}

// The live lease `id`, if there is one.
Result<std::optional<Record>> find_lease(LockedHarbour& locked, const std::string& id) {
  if (!locked.transaction || !is_id(id)) return std::nullopt;
  std::optional<Client> lease = TRY(locked.transaction->read_lease(id));
  if (!lease) return std::nullopt;
  return std::move(lease->record);
}

using RecordFilter = std::function<bool(const Record&)>;

Result<std::vector<Record>> find_leases(LockedHarbour& locked, const RecordFilter& filter) {
  std::vector<Record> found;
  if (!locked.transaction) return found;
  for (const std::string& id : locked.transaction->lease_ids()) {
    std::optional<Record> lease = TRY(find_lease(locked, id));
    if (lease && filter(*lease)) found.push_back(std::move(*lease));
  }
  return found;
}

struct TicketRecord {
  TicketName name;
  Record record;
};

// The live tickets that `filter` accepts, in the order of the queue.
Result<std::vector<TicketRecord>> find_tickets(
    LockedHarbour& locked, const std::function<bool(const TicketRecord&)>& filter) {
  std::vector<TicketRecord> found;
  if (!locked.transaction) return found;
  for (const TicketName& name : locked.transaction->queue()) {
    std::optional<Client> client = TRY(locked.transaction->read_ticket(name));
    if (!client) continue;
    TicketRecord ticket{name, std::move(client->record)};
    if (filter(ticket)) found.push_back(std::move(ticket));
  }
  return found;
}

// Call without the lock: this reads the open files of every process.
Error make_held_by_job_error(const Record& lease) {
  if (holds_bell(lease, lease.pid)) {
    return {ErrorKind::usage,
            fmt::format("lease {0} is held by a job; to end the job: berth cancel {0}", lease.id)};
  }
  const std::string holders = format_bell_holders(lease);
  if (!holders.empty()) {
    return {ErrorKind::usage,
            fmt::format(
                "lease {0} is held by processes of its job ({1}); to end them: berth cancel {0}",
                lease.id, holders)};
  }
  return {ErrorKind::usage,
          fmt::format("lease {} is held by a job; end the job first (its processes are not "
                      "visible here: they belong to another user or run in a container)",
                      lease.id)};
}

// The error for `berth cancel` of a lease. Drops the lock, since user_name() and the search for the
// lease's holders may be slow.
Error make_not_waiting_error(LockedHarbour& locked, const Record& lease) {
  locked.transaction.reset();
  if (!can_end(lease)) {
    return {ErrorKind::usage, fmt::format("{} is a lease of {}, not a waiting ticket", lease.id,
                                          user_name(lease.uid))};
  }
  if (!is_shell_lease(lease)) {
    if (!holds_bell(lease, lease.pid)) return make_held_by_job_error(lease);
    return {ErrorKind::usage,
            fmt::format(
                "{0} is the lease of a running job, not a ticket; to end the job: berth cancel {0}",
                lease.id)};
  }
  return {ErrorKind::usage,
          fmt::format("{0} is a lease, not a waiting ticket; to release it: berth release {0}",
                      lease.id)};
}

Result<TicketRecord> find_cancellable_ticket(LockedHarbour& locked, const std::string& id) {
  auto found =
      TRY(find_tickets(locked, [&](const TicketRecord& ticket) { return ticket.name.id == id; }));
  if (found.empty()) {
    if (const auto lease = TRY(find_lease(locked, id))) {
      return tl::make_unexpected(make_not_waiting_error(locked, *lease));
    }
    return fail(ErrorKind::usage,
                fmt::format("there is no ticket {}; 'berth queue' lists them", in_quotes(id)));
  }
  if (!can_end(found.front().record)) {
    locked.transaction.reset();  // drops the lock: user_name() may be slow
    return fail(ErrorKind::permission, fmt::format("ticket {} belongs to {}; only {} can cancel it",
                                                   id, user_name(found.front().record.uid),
                                                   owner_or_root(found.front().record.uid)));
  }
  return std::move(found.front());
}

Result<std::vector<Record>> cancel_found_tickets(LockedHarbour& locked,
                                                 std::vector<TicketRecord> tickets) {
  std::vector<Record> ended;
  if (!locked.transaction) return ended;
  for (TicketRecord& ticket : tickets) {
    const std::optional<Client> client = TRY(locked.transaction->read_ticket(ticket.name));
    if (!client) continue;  // it has ended by itself meanwhile
    // Rings first: the client waits for the lock, and then finds that its ticket was ended. When it
    // leaves the queue, the client behind it notices, even if this process is killed before it can
    // ring the front.
    locked.transaction->ring(*client);
    TRY(locked.transaction->end_ticket(ticket.name));
    ended.push_back(std::move(ticket.record));
  }
  if (!tickets.empty()) TRY(locked.transaction->ring_front());
  return commit_and_unlock(locked, std::move(ended));
}

// The leases to release.
struct ReleaseSelection {
  std::vector<Record> leases;
  std::optional<Record> job;  // set: this lease of a job was named, so nothing can be released
};

Result<void> add_to_selection(LockedHarbour& locked, ReleaseSelection& selection,
                              const Record& lease) {
  if (!can_end(lease)) {
    locked.transaction.reset();  // drops the lock: user_name() may be slow
    return fail(ErrorKind::permission,
                fmt::format("lease {} belongs to {}; only {} can release it", lease.id,
                            user_name(lease.uid), owner_or_root(lease.uid)));
  }
  if (is_shell_lease(lease)) {
    add_unique(selection.leases, lease);
  } else if (!selection.job) {
    selection.job = lease;
  }
  return {};
}

// The name of the other host of the harbour that has the lease; empty if none has. Drops the lock,
// since this asks Redis.
std::string find_other_host(LockedHarbour& locked, const std::string& id) {
  locked.transaction.reset();
  if (!locked.harbour || !locked.harbour->location().url || !is_id(id)) return "";
  const auto hosts = read_hosts(*locked.harbour->location().url);
  if (!hosts) return "";
  for (const HostState& host : *hosts) {
    const auto& leases = host.contents.leases;
    const bool has_lease = std::any_of(leases.begin(), leases.end(),
                                       [&](const Record& lease) { return lease.id == id; });
    if (has_lease && host.name != locked.harbour->location().host) return host.name;
  }
  return "";
}

Result<void> select_by_id(LockedHarbour& locked, ReleaseSelection& selection,
                          const std::string& id) {
  const std::optional<Record> lease = TRY(find_lease(locked, id));
  if (lease) return add_to_selection(locked, selection, *lease);
  const auto waiting =
      TRY(find_tickets(locked, [&](const TicketRecord& ticket) { return ticket.name.id == id; }));
  if (!waiting.empty()) {
    return fail(
        ErrorKind::usage,
        fmt::format("{0} is a waiting ticket, not a lease; to cancel it: berth cancel {0}", id));
  }
  if (const std::string host = find_other_host(locked, id); !host.empty()) {
    return fail(
        ErrorKind::usage,
        fmt::format("lease {0} is on {1}; release it there: ssh {1} berth release {0}", id, host));
  }
  return fail(ErrorKind::usage,
              fmt::format("there is no lease {}; 'berth status' lists them", in_quotes(id)));
}

// Selects all leases of this user's shells on the GPU. Without one, the error names the holder of
// the GPU.
Result<void> select_by_gpu(LockedHarbour& locked, ReleaseSelection& selection,
                           const NamedGpu& gpu) {
  const std::vector<Record> holders = TRY(find_leases(locked, [&](const Record& lease) {
    return std::find(lease.uuids.begin(), lease.uuids.end(), gpu.uuid) != lease.uuids.end();
  }));
  bool found = false;
  for (const Record& lease : holders) {
    if (!is_own(lease) || !is_shell_lease(lease)) continue;
    add_unique(selection.leases, lease);
    found = true;
  }
  if (found) return {};
  if (holders.empty()) {
    return fail(ErrorKind::usage, fmt::format("there is no lease on GPU {}", gpu.index));
  }
  const auto own = std::find_if(holders.begin(), holders.end(), is_own);
  if (own != holders.end()) return add_to_selection(locked, selection, *own);
  const Record& other = holders.front();
  locked.transaction.reset();  // drops the lock: user_name() may be slow
  if (!is_root()) {
    return fail(ErrorKind::permission,
                fmt::format("GPU {} is leased by {} (lease {}); only {} can release it", gpu.index,
                            user_name(other.uid), other.id, owner_or_root(other.uid)));
  }
  return fail(
      ErrorKind::usage,
      fmt::format("GPU {} is leased by {}; to release that lease, name it: berth release {}",
                  gpu.index, user_name(other.uid), other.id));
}

Result<std::vector<Record>> release_selected_leases(LockedHarbour locked,
                                                    ReleaseSelection selection) {
  if (selection.job) {
    locked.transaction.reset();
    return tl::make_unexpected(make_held_by_job_error(*selection.job));
  }
  if (selection.leases.empty()) return std::move(selection.leases);
  // Rings first: the rung client waits for the lock, and decides even if this process is killed
  // half-way.
  TRY(locked.transaction->ring_front());
  std::vector<Record> ended;
  for (Record& lease : selection.leases) {
    const std::optional<Client> client = TRY(locked.transaction->read_lease(lease.id));
    if (!client) continue;  // it has ended by itself meanwhile
    TRY(locked.transaction->end_lease(*client));
    // Only now: the lease's keeper checks without the lock whether its lease was ended.
    locked.transaction->ring(*client);
    ended.push_back(std::move(lease));
  }
  return commit_and_unlock(locked, std::move(ended));
}

// The leases of this user's shells that this process can end. Not those in a container with another
// directory, which shares only the Redis server with this one.
Result<std::vector<Record>> find_own_shell_leases(LockedHarbour& locked) {
  const std::string directory_id = locked.harbour ? locked.harbour->directory_id() : "";
  return find_leases(locked, [&](const Record& lease) {
    const bool is_local = lease.directory_id.empty() || lease.directory_id == directory_id;
    return is_own(lease) && is_shell_lease(lease) && is_local;
  });
}

}  // namespace

Result<std::vector<Record>> cancel_tickets(const std::vector<std::string>& ids) {
  LockedHarbour locked = TRY(lock_harbour());
  std::vector<TicketRecord> tickets;
  for (const std::string& id : ids) {
    TicketRecord ticket = TRY(find_cancellable_ticket(locked, id));
    const bool known = std::any_of(tickets.begin(), tickets.end(),
                                   [&](const TicketRecord& one) { return one.name.id == id; });
    if (!known) tickets.push_back(std::move(ticket));
  }
  return cancel_found_tickets(locked, std::move(tickets));
}

Result<std::vector<Record>> release_leases(const std::vector<std::string>& ids,
                                           const std::vector<NamedGpu>& gpus) {
  LockedHarbour locked = TRY(lock_harbour());
  ReleaseSelection selection;
  for (const std::string& id : ids) TRY(select_by_id(locked, selection, id));
  for (const NamedGpu& gpu : gpus) TRY(select_by_gpu(locked, selection, gpu));
  return release_selected_leases(std::move(locked), std::move(selection));
}

Result<std::vector<Record>> release_own_leases(const RecordFilter& filter) {
  LockedHarbour locked = TRY(lock_harbour());
  std::vector<Record> own = TRY(find_own_shell_leases(locked));
  std::erase_if(own, [&](const Record& lease) { return !filter(lease); });
  return release_selected_leases(std::move(locked), {std::move(own), std::nullopt});
}

Result<std::vector<Record>> release_current_lease(pid_t shell) {
  LockedHarbour locked = TRY(lock_harbour());
  const std::string named(get_env_or_empty("BERTH_LEASE"));
  if (!named.empty()) {
    ReleaseSelection selection;
    if (const auto lease = TRY(find_lease(locked, named))) {
      TRY(add_to_selection(locked, selection, *lease));
    }
    return release_selected_leases(std::move(locked), std::move(selection));
  }
  std::vector<Record> own = TRY(find_own_shell_leases(locked));
  std::erase_if(own, [](const Record& lease) { return lease.adopted_start.has_value(); });
  if (own.empty()) {
    return fail(ErrorKind::usage, "your shells hold no lease; 'berth status' lists all leases");
  }
  const auto is_of_shell = [shell](const Record& lease) {
    return lease.pid == shell && lease.pid_namespace == pid_namespace();
  };
  if (std::any_of(own.begin(), own.end(), is_of_shell)) {
    std::erase_if(own, [&](const Record& lease) { return !is_of_shell(lease); });
  }
  if (own.size() > 1) {
    return fail(ErrorKind::usage,
                fmt::format("you have {} leases: {}; name the leases to release, or use --all",
                            own.size(), join_text(own, ", ", &Record::id)));
  }
  return release_selected_leases(std::move(locked), {std::move(own), std::nullopt});
}

}  // namespace berth
