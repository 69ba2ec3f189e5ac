// The harbour as it is at one moment, and the changes of one client, made together.
//
// A client changes only what is its own. It may be killed after any line: then its bell has no
// reader, and whatever it left behind counts for nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <tuple>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "harbour/drain.h"
#include "harbour/record.h"

namespace berth {

struct TicketName {
  std::uint64_t order = 0;  // of the queue: lower came first
  std::string id;
  std::uint64_t number = 0;      // in the file's name, which its owner chooses
  std::optional<uid_t> owner{};  // of the file; absent if it is not known, or not identified here

  friend auto operator<=>(const TicketName& a, const TicketName& b) {
    return std::tie(a.order, a.id) <=> std::tie(b.order, b.id);
  }
  friend bool operator==(const TicketName& a, const TicketName& b) { return (a <=> b) == 0; }
};

// A live ticket or lease.
struct Client {
  Record record;
  UniqueFd bell;  // its writing end, if it can be opened from here
  // How long ago it was rung without waking, where its bell cannot tell.
  std::optional<std::chrono::nanoseconds> unanswered{};
  // When it counts no more unless it is heard of, where its bell cannot tell.
  std::optional<std::chrono::milliseconds> expires_in{};
};

// It was rung and has not read its bell for some seconds: it is stopped, frozen or very slow. Reads
// nothing but the bell, so it may be called under the lock.
bool is_unresponsive(const Client& client);

// The waiting processes that the kernel calls stopped (SIGSTOP, Ctrl-Z). Their state is
// read from /proc without the lock, and used under it.
class StoppedProcesses {
 public:
  // Reads the states of these clients' processes, where their PIDs mean something here. True if one
  // is stopped that was not known to be.
  bool read(const std::vector<Record>& clients);
  // Reads those again that were stopped.
  void refresh();
  bool contains(const Record& client) const;

 private:
  std::map<pid_t, uid_t> owners_;  // by PID in this PID namespace
};

// What does not count: its client is dead, or its files are not those of one live client.
struct IgnoredEntry {
  std::string file;
  std::optional<uid_t> owner;
  std::string problem;
  bool leftover = false;  // of a dead client: harmless, and removed by its owner's next command
  bool has_live_bell =
      false;  // its owner has a bell of the same id that lives: it must not be deleted
};

class Transaction {
 public:
  Transaction() = default;
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  virtual ~Transaction() = default;

  // By their names alone: some may not count.
  virtual const std::vector<std::string>& lease_ids() const = 0;
  // In its order, as far as this transaction has changed it, too.
  virtual const std::vector<TicketName>& queue() const = 0;

  // Nothing if it does not count: then ignored_entries() says why. An Error means that nobody can
  // say.
  virtual Result<std::optional<Client>> read_lease(const std::string& id) = 0;
  virtual Result<std::optional<Client>> read_ticket(const TicketName& name) = 0;
  // Did read_ticket() fail because this ticket of a long queue was not read before the lock was
  // taken? A new transaction has more of the queue.
  virtual bool needs_more_tickets() const { return false; }
  // All that count. Those for which descriptors are short come without their bell: they count, and
  // cannot be watched.
  virtual Result<std::vector<Client>> read_leases() = 0;
  virtual Result<std::vector<Drain>> read_drains() = 0;
  // Who may drain GPUs, beside root.
  virtual Result<uid_t> harbour_owner() const = 0;
  // Was this client of ours told to end, by its owner or root?
  virtual bool is_ended(const std::string& id, const std::optional<TicketName>& ticket) = 0;

  // The order of a ticket that arrives now: behind everybody who lives. Where others may arrive at
  // the same time, only a guess; see current_ticket_name().
  virtual Result<std::uint64_t> next_order() = 0;

  // Of a lease that is written now: higher than that of any lease before it on these GPUs. 0 where
  // the kernel ends leases, and nobody needs one.
  virtual std::uint64_t next_epoch() const { return 0; }

  // For how long nobody is to be granted anything yet: the server may have lost leases, and who
  // holds them puts them back.
  virtual std::chrono::milliseconds recovery_time_left() const { return {}; }

  // The record of a client, which must have a bell. A name that is taken (planted) is an Error, and
  // so is a full disk; then nothing has changed.
  virtual Result<void> write_lease(const Record& record) = 0;
  // The lease that is written next takes the place of this ticket, which waits on several hosts.
  virtual void set_ticket_to_replace(const TicketName& /*name*/) {}
  virtual Result<void> write_ticket(const Record& record, std::uint64_t order) = 0;
  // Did the last write fail because there is a file of that name? Any user can plant one, and only
  // its owner can remove it: then take another id.
  virtual bool has_name_conflict() const = 0;
  virtual Result<void> write_drain(const Drain& drain) = 0;  // replaces the one before it
  // Forgets a drain; false if there was none.
  virtual Result<bool> remove_drain(const std::string& uuid) = 0;
  virtual void remove_ticket(const TicketName& name) = 0;
  // A client of ours goes on under another id, and its files under this one were removed (see
  // Harbour::remove_client_files()): the commit removes what else there is.
  virtual void remove_old_id(const std::string& /*id*/) {}
  // Ends a ticket, or a shell's lease, from outside, at once. Only its owner and root can. The
  // caller rings its client, which then leaves, and the first ticket of the queue.
  virtual Result<void> end_ticket(const TicketName& name) = 0;
  virtual Result<void> end_lease(const Client& lease) = 0;

  virtual void ring(const Client& client) = 0;
  // Rings the first ticket of each user that is not stopped: something changed that may let it
  // through. Not only the first of all: that may be a file of a hostile user.
  Result<void> ring_front();
  // The first live tickets of each user, a bounded number, until `visit` returns true for one of
  // that user's.
  Result<void> visit_front(const std::function<bool(const Client&)>& visit);

  // A ticket is passed over while its process does not run.
  void set_stopped_processes(StoppedProcesses stopped) { stopped_ = std::move(stopped); }
  // Clients could not read their bells, since a process has kept the lock.
  void ignore_unread_bells() { check_unread_bells_ = false; }
  bool is_stopped(const Client& client) const;

  virtual const std::vector<IgnoredEntry>& ignored_entries() const = 0;
  // Removes what dead clients left behind, as far as this user may. Never needed for correctness.
  virtual void remove_leftovers() = 0;

  // Where changes were only collected so far, makes them, all or none. False if somebody else
  // changed meanwhile what they rest on: then none was made, and one has to begin again.
  virtual Result<bool> commit() = 0;
  // After that: where a ticket of ours is now.
  virtual TicketName current_ticket_name(const TicketName& written) const { return written; }

  // The leases that remove_leftovers() has removed, for the history.
  virtual const std::vector<Record>& removed_leases() const = 0;

 private:
  StoppedProcesses stopped_;
  bool check_unread_bells_ = true;
};

}  // namespace berth
