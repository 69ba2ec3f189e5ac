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
struct Locked {
  std::optional<Harbour> harbour;
  std::unique_ptr<Transaction> transaction;
};

Result<Locked> lock() {
  Locked locked;
  auto harbour = Harbour::open_existing();
  if (!harbour) return tl::make_unexpected(harbour.error());
  locked.harbour = std::move(*harbour);
  if (!locked.harbour) return locked;
  auto stopped = find_stopped(*locked.harbour);
  if (!stopped) return tl::make_unexpected(stopped.error());
  auto transaction = locked.harbour->begin(LockMode::exclusive, {});
  if (!transaction) return tl::make_unexpected(transaction.error());
  locked.transaction = std::move(*transaction);
  locked.transaction->use(std::move(*stopped));
  return locked;
}

// Commits, and leaves the records of dead clients to the next request for GPUs: the line that it
// writes about each of them in the history needs the list of this host's GPUs, which is not known
// here.
Result<std::vector<Record>> conclude(Locked& locked, std::vector<Record> ended) {
  // Nothing of this rests on what others may have changed.
  if (auto done = locked.transaction->commit(); !done) return tl::make_unexpected(done.error());
  locked.transaction.reset();
  return ended;
}

bool is_own(const Record& record) {
  return record.uid == ::geteuid();
}

bool may_end(const Record& record) {
  return is_own(record) || is_root();
}

bool is_shells(const Record& lease) {
  return lease.holder == HolderKind::shell;
}

std::string ids_of(const std::vector<Record>& records) {
  std::string text;
  for (const Record& record : records) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", record.id);
  }
  return text;
}

void add_once(std::vector<Record>& records, const Record& record) {
  const bool known = std::any_of(records.begin(), records.end(),
                                 [&](const Record& one) { return one.id == record.id; });
  if (!known) records.push_back(record);
}

// The live lease of that id, if there is one.
Result<std::optional<Record>> find_lease(Locked& locked, const std::string& id) {
  if (!locked.transaction || !is_id(id)) return std::nullopt;
  auto lease = locked.transaction->lease(id);
  if (!lease) return tl::make_unexpected(lease.error());
  if (!*lease) return std::nullopt;
  return std::move((*lease)->record);
}

using Condition = std::function<bool(const Record&)>;

Result<std::vector<Record>> find_leases(Locked& locked, const Condition& wanted) {
  std::vector<Record> found;
  if (!locked.transaction) return found;
  for (const std::string& id : locked.transaction->lease_ids()) {
    auto lease = find_lease(locked, id);
    if (!lease) return tl::make_unexpected(lease.error());
    if (*lease && wanted(**lease)) found.push_back(std::move(**lease));
  }
  return found;
}

// Tickets

struct Place {
  TicketName name;
  Record record;
};

// The live tickets of that condition, in the order of the queue.
Result<std::vector<Place>> find_tickets(Locked& locked,
                                        const std::function<bool(const Place&)>& wanted) {
  std::vector<Place> found;
  if (!locked.transaction) return found;
  for (const TicketName& name : locked.transaction->queue()) {
    auto client = locked.transaction->ticket(name);
    if (!client) return tl::make_unexpected(client.error());
    if (!*client) continue;
    Place place{name, std::move((*client)->record)};
    if (wanted(place)) found.push_back(std::move(place));
  }
  return found;
}

Result<Place> find_own_ticket(Locked& locked, const std::string& id) {
  auto found = find_tickets(locked, [&](const Place& place) { return place.name.id == id; });
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
  if (!may_end(found->front().record)) {
    locked.transaction.reset();  // the host's user directory may be slow
    return fail(ErrorKind::permission,
                fmt::format("ticket {} belongs to {}; only its owner or root can cancel it", id,
                            user_name(found->front().record.uid)));
  }
  Place place = std::move(found->front());
  return place;
}

Result<std::vector<Record>> end_tickets(Locked& locked, std::vector<Place> places) {
  std::vector<Record> ended;
  if (!locked.transaction) return ended;
  for (Place& place : places) {
    auto client = locked.transaction->ticket(place.name);
    if (!client) return tl::make_unexpected(client.error());
    if (!*client) continue;  // it ended by itself meanwhile
    // Rung first: it waits for our lock, and then sees that it was ended. When it leaves, the one
    // behind it notices, even if we are killed before we can ring that.
    locked.transaction->ring(**client);
    if (auto done = locked.transaction->end_ticket(place.name); !done) {
      return tl::make_unexpected(done.error());
    }
    ended.push_back(std::move(place.record));
  }
  if (!places.empty()) {
    if (auto rung = locked.transaction->ring_front(); !rung) {
      return tl::make_unexpected(rung.error());
    }
  }
  return conclude(locked, std::move(ended));
}

// Leases

// Without the lock: this looks at every process.
Error kept_by_job(const Record& lease) {
  const auto refuse = [&lease](const std::string& what) {
    return Error{ErrorKind::usage, fmt::format("lease {} is kept by its job; {}", lease.id, what)};
  };
  if (holds_bell(lease, lease.pid)) return refuse(fmt::format("stop that (kill {})", lease.pid));
  const std::string holders = bell_holders(lease);
  if (!holders.empty()) return refuse(fmt::format("stop what is left of that: {}", holders));
  return refuse(
      "stop that: its processes cannot be seen from here, since they are another user's "
      "or in a container");
}

// What is to be released, or the job that must be stopped instead.
struct Choice {
  std::vector<Record> leases;
  std::optional<Record> job;
};

Result<void> choose(Locked& locked, Choice& choice, const Record& lease) {
  if (!may_end(lease)) {
    locked.transaction.reset();  // the host's user directory may be slow
    return fail(ErrorKind::permission,
                fmt::format("lease {} belongs to {}; only its owner or root can release it",
                            lease.id, user_name(lease.uid)));
  }
  if (is_shells(lease)) {
    add_once(choice.leases, lease);
  } else if (!choice.job) {
    choice.job = lease;
  }
  return {};
}

// Where that lease is, if another host of the harbour has it. Without the lock: this asks Redis.
std::string other_host_of(Locked& locked, const std::string& id) {
  locked.transaction.reset();
  if (!locked.harbour || !locked.harbour->location().url || !is_id(id)) return "";
  const auto hosts = look_at_hosts(*locked.harbour->location().url);
  if (!hosts) return "";
  for (const HostState& host : *hosts) {
    const auto& leases = host.ledger.leases;
    const bool there = std::any_of(leases.begin(), leases.end(),
                                   [&](const Record& lease) { return lease.id == id; });
    if (there && host.name != locked.harbour->location().host) return host.name;
  }
  return "";
}

Result<void> choose_id(Locked& locked, Choice& choice, const std::string& id) {
  const auto lease = find_lease(locked, id);
  if (!lease) return tl::make_unexpected(lease.error());
  if (*lease) return choose(locked, choice, **lease);
  const auto waiting =
      find_tickets(locked, [&](const Place& place) { return place.name.id == id; });
  if (!waiting) return tl::make_unexpected(waiting.error());
  if (!waiting->empty()) {
    return fail(
        ErrorKind::usage,
        fmt::format("{0} is a ticket, which still waits; 'berth cancel {0}' takes it out of "
                    "the queue",
                    id));
  }
  if (const std::string host = other_host_of(locked, id); !host.empty()) {
    return fail(
        ErrorKind::usage,
        fmt::format("lease {0} is on {1}; release it there: ssh {1} berth release {0}", id, host));
  }
  return fail(ErrorKind::usage,
              fmt::format("there is no lease {}; 'berth status' lists them", in_quotes(id)));
}

// Every lease of one's own shells on the GPU. If there is none: who holds it instead.
Result<void> choose_gpu(Locked& locked, Choice& choice, const NamedGpu& gpu) {
  const auto here = find_leases(locked, [&](const Record& lease) {
    return std::find(lease.uuids.begin(), lease.uuids.end(), gpu.uuid) != lease.uuids.end();
  });
  if (!here) return tl::make_unexpected(here.error());
  bool found = false;
  for (const Record& lease : *here) {
    if (!is_own(lease) || !is_shells(lease)) continue;
    add_once(choice.leases, lease);
    found = true;
  }
  if (found) return {};
  if (here->empty()) {
    return fail(ErrorKind::usage, fmt::format("nobody has a lease on GPU {}", gpu.index));
  }
  const auto own = std::find_if(here->begin(), here->end(), is_own);
  if (own != here->end()) return choose(locked, choice, *own);
  const Record& other = here->front();
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

Result<std::vector<Record>> end_leases(Locked locked, Choice choice) {
  if (choice.job) {
    locked.transaction.reset();
    return tl::make_unexpected(kept_by_job(*choice.job));
  }
  if (choice.leases.empty()) return std::move(choice.leases);
  // Rung first: it waits for our lock, and decides even if we are killed half-way.
  if (auto rung = locked.transaction->ring_front(); !rung) return tl::make_unexpected(rung.error());
  std::vector<Record> ended;
  for (Record& lease : choice.leases) {
    auto client = locked.transaction->lease(lease.id);
    if (!client) return tl::make_unexpected(client.error());
    if (!*client) continue;  // it ended by itself meanwhile
    if (auto done = locked.transaction->end_lease(**client); !done) {
      return tl::make_unexpected(done.error());
    }
    // Its keeper looks without the lock, so it is rung only now.
    locked.transaction->ring(**client);
    ended.push_back(std::move(lease));
  }
  return conclude(locked, std::move(ended));
}

// The leases of this user's shells that can be ended from here: not those of a container with
// another directory, which shares the harbour in Redis only.
Result<std::vector<Record>> find_own_shells(Locked& locked) {
  const std::string directory_id = locked.harbour ? locked.harbour->directory_id() : "";
  return find_leases(locked, [&](const Record& lease) {
    const bool here = lease.directory_id.empty() || lease.directory_id == directory_id;
    return is_own(lease) && is_shells(lease) && here;
  });
}

}  // namespace

Result<std::vector<Record>> cancel_tickets(const std::vector<std::string>& ids) {
  auto locked = lock();
  if (!locked) return tl::make_unexpected(locked.error());
  std::vector<Place> places;
  for (const std::string& id : ids) {
    auto place = find_own_ticket(*locked, id);
    if (!place) return tl::make_unexpected(place.error());
    const bool known = std::any_of(places.begin(), places.end(),
                                   [&](const Place& one) { return one.name.id == id; });
    if (!known) places.push_back(std::move(*place));
  }
  return end_tickets(*locked, std::move(places));
}

Result<std::vector<Record>> cancel_own_tickets() {
  auto locked = lock();
  if (!locked) return tl::make_unexpected(locked.error());
  auto places = find_tickets(*locked, [](const Place& place) { return is_own(place.record); });
  if (!places) return tl::make_unexpected(places.error());
  return end_tickets(*locked, std::move(*places));
}

Result<std::vector<Record>> release_leases(const std::vector<std::string>& ids,
                                           const std::vector<NamedGpu>& gpus) {
  auto locked = lock();
  if (!locked) return tl::make_unexpected(locked.error());
  Choice choice;
  for (const std::string& id : ids) {
    if (auto chosen = choose_id(*locked, choice, id); !chosen) {
      return tl::make_unexpected(chosen.error());
    }
  }
  for (const NamedGpu& gpu : gpus) {
    if (auto chosen = choose_gpu(*locked, choice, gpu); !chosen) {
      return tl::make_unexpected(chosen.error());
    }
  }
  return end_leases(std::move(*locked), std::move(choice));
}

Result<std::vector<Record>> release_own_leases() {
  auto locked = lock();
  if (!locked) return tl::make_unexpected(locked.error());
  auto own = find_own_shells(*locked);
  if (!own) return tl::make_unexpected(own.error());
  return end_leases(std::move(*locked), {std::move(*own), std::nullopt});
}

Result<std::vector<Record>> release_this_lease() {
  auto locked = lock();
  if (!locked) return tl::make_unexpected(locked.error());
  const std::string named(setting("BERTH_LEASE"));
  if (!named.empty()) {
    const auto lease = find_lease(*locked, named);
    if (!lease) return tl::make_unexpected(lease.error());
    Choice choice;
    if (*lease) {
      if (auto chosen = choose(*locked, choice, **lease); !chosen) {
        return tl::make_unexpected(chosen.error());
      }
    }
    return end_leases(std::move(*locked), std::move(choice));
  }
  auto own = find_own_shells(*locked);
  if (!own) return tl::make_unexpected(own.error());
  if (own->empty()) {
    return fail(ErrorKind::usage,
                "no shell of yours has a lease; 'berth status' shows who has one");
  }
  if (own->size() > 1) {
    return fail(ErrorKind::usage,
                fmt::format("you have {} leases: {}; name those to give back, or say --all",
                            own->size(), ids_of(*own)));
  }
  return end_leases(std::move(*locked), {std::move(*own), std::nullopt});
}

}  // namespace berth
