// A transaction: the harbour's contents at one moment, and the changes that one client makes.
//
// A client changes only its own files; root and the owner of a ticket or lease can also end it. A
// client may be killed after any line of code: then its bell has no reader, and what it left behind
// does not count. Implemented by DirectoryTransaction (one host) and RedisTransaction (several).
//
// A ticket or lease *counts* if read_ticket() or read_lease() returns it. For that its client must
// live (a process of its owner has the bell open; on another host: it sends heartbeats), it must
// not have been ended from outside, and a user must not have forged it. A ticket must also be
// readable and within the limits of its owner; a lease that cannot be read counts all the same,
// because it may hold any GPU. What does not count is ignored, as if it did not exist; see
// ignored_entries().
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

// Identifies a ticket. Sorts by its place in the queue.
//
// A ticket has two numbers. Its owner chooses `file_number` (see Transaction::next_file_number())
// when it writes the ticket, as a part of the file's name and of the record (Record::file_number),
// and it never changes. `order` is the place in the queue: the ticket with the lowest order is
// granted first. Every reader computes it from the file_number and the time at which the kernel saw
// the file get its name (ticket_order() in directory_listing.h), so a forged file_number gains
// nothing. With a server the server assigns the order, and a file_number is equal to it.
struct TicketName {
  std::uint64_t order = 0;
  std::string id;
  std::uint64_t file_number = 0;
  std::optional<uid_t> owner{};  // of the file; absent if unknown, or if this user namespace does
                                 // not map the owner
  // Not 0: all tickets of the same owner with the same value ask for the same (hash_request()). The
  // owner of a ticket can set it to any value, so it must not matter for other users' tickets.
  std::uint64_t request_hash = 0;

  friend auto operator<=>(const TicketName& a, const TicketName& b) {
    return std::tie(a.order, a.id) <=> std::tie(b.order, b.id);
  }
  friend bool operator==(const TicketName& a, const TicketName& b) { return (a <=> b) == 0; }
};

// A live ticket or lease.
struct Client {
  Record record;
  UniqueFd bell;  // the write end; empty if it cannot be opened on this host
  // With a server: the age of the oldest ring that the client has not answered.
  std::optional<std::chrono::nanoseconds> unanswered{};
  // For a client of another host: the time until it counts as dead, unless it sends a heartbeat.
  std::optional<std::chrono::milliseconds> expires_in{};
  // Of a ticket whose request has changed: the request that the ticket was written with.
  std::optional<Request> original_request{};
};

// Has the client not reacted to a ring for some seconds? Then it is stopped, frozen or very slow.
// Reads nothing but the bell, so it may be called under the lock.
bool is_unresponsive(const Client& client);

// The processes of waiting clients that the kernel reports as stopped (SIGSTOP, Ctrl-Z).
//
// Opening files in /proc can block, so a caller reads the states without the lock, and passes them
// to a transaction that holds the lock.
class StoppedProcesses {
 public:
  // Reads the states of these clients' processes. Skips clients of other PID namespaces. Returns
  // whether it found a stopped process that it did not know as stopped.
  bool read(const std::vector<Record>& clients);
  // Reads the states of the known stopped processes again, and forgets those that run.
  void refresh();
  bool contains(const Record& client) const;

 private:
  std::map<pid_t, uid_t> owners_;  // by PID in this PID namespace
};

// A file (or an entry of the server) that does not count, and why: its client is dead, or a user
// put there something that is not part of a live client.
struct IgnoredEntry {
  std::string file;
  std::optional<uid_t> owner;  // absent if unknown, and for the ticket of a client with a lease
  std::string problem;         // for messages
  // Left by a dead client. Harmless: the next command of its owner or of root removes it.
  bool leftover = false;
  // The owner has a live bell of the same id: the file must not be deleted.
  bool has_live_bell = false;
};

// Holds the lock of this host's directory from its construction until commit() (with a server) or
// its destruction. While it exists, the caller must not do anything that can block: ask the driver
// or the server, sleep, write to a terminal, look up a user's name, or open a file of another
// process. All clients of the host would wait. Not thread-safe.
class Transaction {
 public:
  Transaction() = default;
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  virtual ~Transaction() = default;

  // The ids of all leases by the names of their entries. Some of them may not count.
  virtual const std::vector<std::string>& lease_ids() const = 0;
  // All tickets in order, with the changes of this transaction. Some may not count.
  virtual const std::vector<TicketName>& queue() const = 0;

  // nullopt if the lease or ticket does not count; ignored_entries() then says why. An Error means
  // that this cannot be determined: the caller must give up its decision.
  virtual Result<std::optional<Client>> read_lease(const std::string& id) = 0;
  virtual Result<std::optional<Client>> read_ticket(const TicketName& name) = 0;
  // A ticket as it would be if it counted, without its bell, and without proving that its client
  // lives: that takes half of the time. nullopt if only read_ticket() can tell.
  virtual std::optional<Client> read_unproved_ticket(const TicketName& /*name*/) { return {}; }
  // Did read_ticket() fail because the transaction read only a part of a long queue before it took
  // the lock? Then the caller begins a new transaction, which reads more of the queue.
  virtual bool needs_more_tickets() const { return false; }
  // All leases that count. When this process runs short of descriptors, leases come without their
  // bell: they count, but cannot be watched.
  virtual Result<std::vector<Client>> read_leases() = 0;
  virtual Result<std::vector<Drain>> read_drains() = 0;
  // The user who may drain GPUs, beside root.
  virtual Result<uid_t> harbour_owner() const = 0;
  // Did the owner or root end this client of the process's user from outside? The client is the
  // ticket if `ticket` is set, else the lease `id`.
  virtual bool is_ended(const std::string& id, const std::optional<TicketName>& ticket) = 0;

  // The order, and the file_number, for a ticket that is written now: behind all tickets. With a
  // server, the server assigns the final order in commit(); see current_ticket_name().
  virtual Result<std::uint64_t> next_file_number() = 0;

  // The epoch for a lease that is written now: higher than that of any earlier lease on these GPUs.
  // 0 without a server: there the kernel ends leases, and no epoch is needed.
  virtual std::uint64_t next_epoch() const { return 0; }

  // For how long no client may be granted GPUs: the server may have lost leases, and their holders
  // need this time to put them back.
  virtual std::chrono::milliseconds recovery_time_left() const { return {}; }

  // Writes the record of a client, whose bell must exist. On an Error (a full disk, or a name
  // conflict) nothing has changed.
  virtual Result<void> write_lease(const Record& record) = 0;
  // Writes the record of this user's live lease again, with another end. On an Error nothing has
  // changed.
  virtual Result<void> replace_lease(const Record& record) = 0;
  // The lease that is written next replaces this ticket, which waits on several hosts.
  virtual void set_ticket_to_replace(const TicketName& /*name*/) {}
  // Writes a new ticket, with a number from next_file_number(), or the changed request of a ticket
  // that exists, with its file_number: such a ticket keeps its place. In a directory other clients
  // accept the changed request only if asks_for_no_more(). An Error of ErrorKind::not_granted means
  // that this user has too many tickets.
  virtual Result<void> write_ticket(const Record& record, std::uint64_t file_number) = 0;
  // Did the last write fail because a file of that name exists? Any user can create one, and only
  // that user can remove it, so the caller continues with another id.
  virtual bool has_name_conflict() const = 0;
  virtual Result<void> write_drain(const Drain& drain) = 0;  // replaces an earlier drain of the GPU
  // Returns false if the GPU is not drained.
  virtual Result<bool> remove_drain(const std::string& uuid) = 0;
  virtual void remove_ticket(const TicketName& name) = 0;
  // A client of this process continues under another id, and the caller has removed its files under
  // the old id (see Harbour::remove_client_files()). commit() removes it from the server, too.
  virtual void remove_old_id(const std::string& /*id*/) {}
  // Ends a ticket, or a lease with HolderKind::shell, from outside. Only its owner and root can. It
  // does not count from now on. The caller must ring its client, which then leaves, and the first
  // ticket of the queue.
  virtual Result<void> end_ticket(const TicketName& name) = 0;
  virtual Result<void> end_lease(const Client& lease) = 0;

  virtual void ring(const Client& client) = 0;
  // Rings the first ticket of each user that is not stopped, because a change may let it be
  // granted. The first ticket of the whole queue alone is not enough: a hostile user may have put
  // it there.
  Result<void> ring_front();
  // Calls `visit` for the first live tickets of each user, in the order of the queue, until it
  // returns true for one of that user's tickets. The number of visits for a user is limited.
  Result<void> visit_front(const std::function<bool(const Client&)>& visit);

  // The scheduler passes over the ticket of a stopped client. Two facts make a client stopped: the
  // kernel stopped its process, or the client has not read its bell for some seconds.
  bool is_stopped(const Client& client) const;
  void set_stopped_processes(StoppedProcesses stopped) { stopped_ = std::move(stopped); }
  // Unread bells do not count for is_stopped() from now on. For use after another process kept the
  // lock for long: meanwhile no client could react to its bell.
  void ignore_unread_bells() { check_unread_bells_ = false; }

  // What the calls before found not to count.
  virtual const std::vector<IgnoredEntry>& ignored_entries() const = 0;
  // Removes files of dead clients, as far as this user may, and a bounded number at a time. Only
  // housekeeping: files of dead clients do not count.
  virtual void remove_leftovers() = 0;

  // With a server: makes all changes, or none. Returns false if another client changed what this
  // transaction rests on; then nothing was changed, and the caller begins a new transaction.
  // Without a server each change was made at once, and commit() does nothing.
  virtual Result<bool> commit() = 0;
  // After commit(): the place of a ticket that this transaction wrote.
  virtual TicketName current_ticket_name(const TicketName& written) const { return written; }

  // The leases that remove_leftovers() removed, for the history.
  virtual const std::vector<Record>& removed_leases() const = 0;

 private:
  StoppedProcesses stopped_;
  bool check_unread_bells_ = true;
};

}  // namespace berth
