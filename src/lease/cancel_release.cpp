// Ending of tickets and leases from outside; see leaving.h.
#include "lease/cancel_release.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <memory>
#include <optional>
#include <unistd.h>
#include <utility>

#include "base/environment.h"
#include "base/text.h"
#include "base/users.h"
#include "cluster/store/hosts.h"
#include "harbour/harbour.h"
#include "lease/holders.h"

namespace berth {
namespace {

// The harbour under its lock, or nothing at all where there is none.
struct LockedHarbour {
  std::optional<Harbour> harbour;
  std::unique_ptr<Transaction> transaction;
};

Result<LockedHarbour> lock_harbour() {
  LockedHarbour locked;
  auto harbour = Harbour::open_existing();
  if (!harbour) return tl::make_unexpected(harbour.error());
  locked.harbour = std::move(*harbour);
  if (!locked.harbour) return locked;
  auto stopped = find_stopped_processes(*locked.harbour);
  if (!stopped) return tl::make_unexpected(stopped.error());
  auto transaction = locked.harbour->begin(LockMode::exclusive, {});
  if (!transaction) return tl::make_unexpected(transaction.error());
  locked.transaction = std::move(*transaction);
  locked.transaction->set_stopped_processes(std::move(*stopped));
  return locked;
}

// Commits, and leaves the records of dead clients to the next request for GPUs: the line that it
// writes about each of them in the history needs the list of this host's GPUs, which is not known
// here.
Result<std::vector<Record>> commit_and_unlock(LockedHarbour& locked, std::vector<Record> ended) {
  // Nothing of this rests on what others may have changed.
  if (auto done = locked.transaction->commit(); !done) return tl::make_unexpected(done.error());
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

std::string format_ids(const std::vector<Record>& records) {
  std::string text;
  for (const Record& record : records) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", record.id);
  }
  return text;
}

void add_unique(std::vector<Record>& records, const Record& record) {
  const bool known = std::any_of(records.begin(), records.end(),
                                 [&](const Record& one) { return one.id == record.id; });
  if (!known) records.push_back(record);
}

// The live lease of that id, if there is one.
Result<std::optional<Record>> find_lease(LockedHarbour& locked, const std::string& id) {
  if (!locked.transaction || !is_id(id)) return std::nullopt;
  auto lease = locked.transaction->read_lease(id);
  if (!lease) return tl::make_unexpected(lease.error());
  if (!*lease) return std::nullopt;
  return std::move((*lease)->record);
}

using RecordFilter = std::function<bool(const Record&)>;

Result<std::vector<Record>> find_leases(LockedHarbour& locked, const RecordFilter& filter) {
  std::vector<Record> found;
  if (!locked.transaction) return found;
  for (const std::string& id : locked.transaction->lease_ids()) {
    auto lease = find_lease(locked, id);
    if (!lease) return tl::make_unexpected(lease.error());
    if (*lease && filter(**lease)) found.push_back(std::move(**lease));
  }
  return found;
}

// Tickets

struct TicketRecord {
  TicketName name;
  Record record;
};

// The live tickets of that condition, in the order of the queue.
Result<std::vector<TicketRecord>> find_tickets(
    LockedHarbour& locked, const std::function<bool(const TicketRecord&)>& filter) {
  std::vector<TicketRecord> found;
  if (!locked.transaction) return found;
  for (const TicketName& name : locked.transaction->queue()) {
    auto client = locked.transaction->read_ticket(name);
    if (!client) return tl::make_unexpected(client.error());
    if (!*client) continue;
    TicketRecord ticket{name, std::move((*client)->record)};
    if (filter(ticket)) found.push_back(std::move(ticket));
  }
  return found;
}

Result<TicketRecord> find_cancellable_ticket(LockedHarbour& locked, const std::string& id) {
  auto found =
      find_tickets(locked, [&](const TicketRecord& ticket) { return ticket.name.id == id; });
  if (!found) return tl::make_unexpected(found.error());
  if (found->empty()) {
    const auto lease = find_lease(locked, id);
    if (!lease) return tl::make_unexpected(lease.error());
    if (*lease) {
      return fail(ErrorKind::usage, fmt::format("{0} waits no more, it is a lease now; 'berth "
                                                "release {0}' gives it back",
                                                id));
    }
    return fail(ErrorKind::usage,
                fmt::format("there is no ticket {}; 'berth queue' lists them", in_quotes(id)));
  }
  if (!can_end(found->front().record)) {
    locked.transaction.reset();  // the host's user directory may be slow
    return fail(ErrorKind::permission,
                fmt::format("ticket {} belongs to {}; only its owner or root can cancel it", id,
                            user_name(found->front().record.uid)));
  }
  TicketRecord ticket = std::move(found->front());
  return ticket;
}

Result<std::vector<Record>> cancel_found_tickets(LockedHarbour& locked,
                                                 std::vector<TicketRecord> tickets) {
  std::vector<Record> ended;
  if (!locked.transaction) return ended;
  for (TicketRecord& ticket : tickets) {
    auto client = locked.transaction->read_ticket(ticket.name);
    if (!client) return tl::make_unexpected(client.error());
    if (!*client) continue;  // it ended by itself meanwhile
    // Rung first: it waits for our lock, and then sees that it was ended. When it leaves, the one
    // behind it notices, even if we are killed before we can ring that.
    locked.transaction->ring(**client);
    if (auto done = locked.transaction->end_ticket(ticket.name); !done) {
      return tl::make_unexpected(done.error());
    }
    ended.push_back(std::move(ticket.record));
  }
  if (!tickets.empty()) {
    if (auto rung = locked.transaction->ring_front(); !rung) {
      return tl::make_unexpected(rung.error());
    }
  }
  return commit_and_unlock(locked, std::move(ended));
}

// Leases

// Without the lock: this looks at every process.
Error make_held_by_job_error(const Record& lease) {
  const auto refuse = [&lease](const std::string& what) {
    return Error{ErrorKind::usage, fmt::format("lease {} is kept by its job; {}", lease.id, what)};
  };
  if (holds_bell(lease, lease.pid)) return refuse(fmt::format("stop that (kill {})", lease.pid));
  const std::string holders = format_bell_holders(lease);
  if (!holders.empty()) return refuse(fmt::format("stop what is left of that: {}", holders));
  return refuse(
      "stop that: its processes cannot be seen from here, since they are another user's "
      "or in a container");
}

// What is to be released, or the job that must be stopped instead.
struct ReleaseSelection {
  std::vector<Record> leases;
  std::optional<Record> job;
};

Result<void> add_to_selection(LockedHarbour& locked, ReleaseSelection& selection,
                              const Record& lease) {
  if (!can_end(lease)) {
    locked.transaction.reset();  // the host's user directory may be slow
    return fail(ErrorKind::permission,
                fmt::format("lease {} belongs to {}; only its owner or root can release it",
                            lease.id, user_name(lease.uid)));
  }
  if (is_shell_lease(lease)) {
    add_unique(selection.leases, lease);
  } else if (!selection.job) {
    selection.job = lease;
  }
  return {};
}

// Where that lease is, if another host of the harbour has it. Without the lock: this asks Redis.
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
  const auto lease = find_lease(locked, id);
  if (!lease) return tl::make_unexpected(lease.error());
  if (*lease) return add_to_selection(locked, selection, **lease);
  const auto waiting =
      find_tickets(locked, [&](const TicketRecord& ticket) { return ticket.name.id == id; });
  if (!waiting) return tl::make_unexpected(waiting.error());
  if (!waiting->empty()) {
    return fail(
        ErrorKind::usage,
        fmt::format("{0} is a ticket, which still waits; 'berth cancel {0}' takes it out of "
                    "the queue",
                    id));
  }
  if (const std::string host = find_other_host(locked, id); !host.empty()) {
    return fail(
        ErrorKind::usage,
        fmt::format("lease {0} is on {1}; release it there: ssh {1} berth release {0}", id, host));
  }
  return fail(ErrorKind::usage,
              fmt::format("there is no lease {}; 'berth status' lists them", in_quotes(id)));
}

// Every lease of one's own shells on the GPU. If there is none: who holds it instead.
Result<void> select_by_gpu(LockedHarbour& locked, ReleaseSelection& selection,
                           const NamedGpu& gpu) {
  const auto holders = find_leases(locked, [&](const Record& lease) {
    return std::find(lease.uuids.begin(), lease.uuids.end(), gpu.uuid) != lease.uuids.end();
  });
  if (!holders) return tl::make_unexpected(holders.error());
  bool found = false;
  for (const Record& lease : *holders) {
    if (!is_own(lease) || !is_shell_lease(lease)) continue;
    add_unique(selection.leases, lease);
    found = true;
  }
  if (found) return {};
  if (holders->empty()) {
    return fail(ErrorKind::usage, fmt::format("nobody has a lease on GPU {}", gpu.index));
  }
  const auto own = std::find_if(holders->begin(), holders->end(), is_own);
  if (own != holders->end()) return add_to_selection(locked, selection, *own);
  const Record& other = holders->front();
  locked.transaction.reset();
  if (!is_root()) {
    return fail(
        ErrorKind::permission,
        fmt::format("GPU {} is leased by {} (lease {}); only its owner or root can release it",
                    gpu.index, user_name(other.uid), other.id));
  }
  return fail(
      ErrorKind::usage,
      fmt::format("GPU {} is leased by {}; name the lease to take it away: berth release {}",
                  gpu.index, user_name(other.uid), other.id));
}

Result<std::vector<Record>> release_selected_leases(LockedHarbour locked,
                                                    ReleaseSelection selection) {
  if (selection.job) {
    locked.transaction.reset();
    return tl::make_unexpected(make_held_by_job_error(*selection.job));
  }
  if (selection.leases.empty()) return std::move(selection.leases);
  // Rung first: it waits for our lock, and decides even if we are killed half-way.
  if (auto rung = locked.transaction->ring_front(); !rung) return tl::make_unexpected(rung.error());
  std::vector<Record> ended;
  for (Record& lease : selection.leases) {
    auto client = locked.transaction->read_lease(lease.id);
    if (!client) return tl::make_unexpected(client.error());
    if (!*client) continue;  // it ended by itself meanwhile
    if (auto done = locked.transaction->end_lease(**client); !done) {
      return tl::make_unexpected(done.error());
    }
    // Its keeper looks without the lock, so it is rung only now.
    locked.transaction->ring(**client);
    ended.push_back(std::move(lease));
  }
  return commit_and_unlock(locked, std::move(ended));
}

// The leases of this user's shells that can be ended from here: not those of a container with
// another directory, which shares the harbour in Redis only.
Result<std::vector<Record>> find_own_shell_leases(LockedHarbour& locked) {
  const std::string directory_id = locked.harbour ? locked.harbour->directory_id() : "";
  return find_leases(locked, [&](const Record& lease) {
    const bool is_local = lease.directory_id.empty() || lease.directory_id == directory_id;
    return is_own(lease) && is_shell_lease(lease) && is_local;
  });
}

}  // namespace

Result<std::vector<Record>> cancel_tickets(const std::vector<std::string>& ids) {
  auto locked = lock_harbour();
  if (!locked) return tl::make_unexpected(locked.error());
  std::vector<TicketRecord> tickets;
  for (const std::string& id : ids) {
    auto ticket = find_cancellable_ticket(*locked, id);
    if (!ticket) return tl::make_unexpected(ticket.error());
    const bool known = std::any_of(tickets.begin(), tickets.end(),
                                   [&](const TicketRecord& one) { return one.name.id == id; });
    if (!known) tickets.push_back(std::move(*ticket));
  }
  return cancel_found_tickets(*locked, std::move(tickets));
}

Result<std::vector<Record>> cancel_own_tickets() {
  auto locked = lock_harbour();
  if (!locked) return tl::make_unexpected(locked.error());
  auto tickets =
      find_tickets(*locked, [](const TicketRecord& ticket) { return is_own(ticket.record); });
  if (!tickets) return tl::make_unexpected(tickets.error());
  return cancel_found_tickets(*locked, std::move(*tickets));
}

Result<std::vector<Record>> release_leases(const std::vector<std::string>& ids,
                                           const std::vector<NamedGpu>& gpus) {
  auto locked = lock_harbour();
  if (!locked) return tl::make_unexpected(locked.error());
  ReleaseSelection selection;
  for (const std::string& id : ids) {
    if (auto selected = select_by_id(*locked, selection, id); !selected) {
      return tl::make_unexpected(selected.error());
    }
  }
  for (const NamedGpu& gpu : gpus) {
    if (auto selected = select_by_gpu(*locked, selection, gpu); !selected) {
      return tl::make_unexpected(selected.error());
    }
  }
  return release_selected_leases(std::move(*locked), std::move(selection));
}

Result<std::vector<Record>> release_own_leases() {
  auto locked = lock_harbour();
  if (!locked) return tl::make_unexpected(locked.error());
  auto own = find_own_shell_leases(*locked);
  if (!own) return tl::make_unexpected(own.error());
  return release_selected_leases(std::move(*locked), {std::move(*own), std::nullopt});
}

Result<std::vector<Record>> release_current_lease() {
  auto locked = lock_harbour();
  if (!locked) return tl::make_unexpected(locked.error());
  const std::string named(get_env_or_empty("BERTH_LEASE"));
  if (!named.empty()) {
    const auto lease = find_lease(*locked, named);
    if (!lease) return tl::make_unexpected(lease.error());
    ReleaseSelection selection;
    if (*lease) {
      if (auto selected = add_to_selection(*locked, selection, **lease); !selected) {
        return tl::make_unexpected(selected.error());
      }
    }
    return release_selected_leases(std::move(*locked), std::move(selection));
  }
  auto own = find_own_shell_leases(*locked);
  if (!own) return tl::make_unexpected(own.error());
  if (own->empty()) {
    return fail(ErrorKind::usage,
                "no shell of yours has a lease; 'berth status' shows who has one");
  }
  if (own->size() > 1) {
    return fail(ErrorKind::usage,
                fmt::format("you have {} leases: {}; name those to give back, or say --all",
                            own->size(), format_ids(*own)));
  }
  return release_selected_leases(std::move(*locked), {std::move(*own), std::nullopt});
}

}  // namespace berth
