// The harbour: the place where all users of a host keep tickets (requests that wait) and leases
// (granted requests).
//
// On a single host the harbour is a directory. Each client has two files there that only the
// client's owner can write: a record (see record.h) and a bell (see bell.h). A record counts only
// while the bell beside it is a FIFO of the same owner that a process has open for reading. The
// owner of a file is the one that the kernel reports. There is no daemon: each client reads and
// changes the directory itself, under one lock. docs/harbour-protocol.md is the whole protocol.
//
// For several hosts, a Redis server keeps the tickets, leases and drains. Each host still has its
// directory, with the bells of its clients and the files of its leases; see
// cluster/store/redis_transaction.h.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/private_fd.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "cluster/store/redis_store.h"
#include "harbour/directory_transaction.h"
#include "harbour/location.h"
#include "harbour/lock.h"
#include "harbour/transaction.h"

namespace berth {

// An open harbour. Owns the open directory and the connections to the server. Not thread-safe.
class Harbour {
 public:
  // Opens the harbour, and creates the directory if it does not exist. `initialize`: see
  // open_harbour_directory(). The server is contacted only later. Errors are ErrorKind::io, or that
  // of an invalid configuration (HarbourLocation::configuration_error).
  static Result<Harbour> open(HarbourLocation location = harbour_location(),
                              const DirectoryInitializer& initialize = {});

  // The same for a caller that only reads: nullopt if the directory does not exist. With a server,
  // the directory is created all the same.
  static Result<std::optional<Harbour>> open_existing(
      HarbourLocation location = harbour_location());

  const HarbourLocation& location() const { return location_; }
  int directory() const { return directory_.get(); }

  // Locks the directory and lists it; with a server, reads the server's contents before that. The
  // lock ends with the transaction. If another process deleted or replaced the directory, begin()
  // opens or creates the directory that is at the path now. `client` is the id of the client that
  // decides, if the caller is a client: the transaction sees everything that this client was rung
  // for so far. Errors are ErrorKind::io, or those of the server (ErrorKind::unavailable if it does
  // not answer).
  Result<std::unique_ptr<Transaction>> begin(LockMode mode, const LockOptions& lock_options,
                                             const std::string& client = "");
  // The same for the directory alone, even if the harbour has a server.
  Result<std::unique_ptr<DirectoryTransaction>> begin_directory(LockMode mode,
                                                                const LockOptions& lock_options);

  // The bell of a client of this process.
  struct OwnBell {
    std::string id;
    PrivateFd fd;  // closed in forks, until the lease is granted and its job inherits the bell
  };
  // Makes a bell with a new id, or with `preferred_id` if that is free. Needs no lock: clients
  // ignore a bell without a record.
  Result<OwnBell> make_bell(const std::string& preferred_id = "");

  // Removes an ended client of this process: its bell, and its ticket (if `ticket` is set) or
  // lease. Needs neither the lock nor disk space. Must not be called under the lock, since it may
  // wait for the server. Failure is harmless: a record without a live bell does not count.
  void remove_client(const std::string& id, const std::optional<TicketName>& ticket);
  // Removes only the client's files. May be called under the lock.
  void remove_client_files(const std::string& id, const std::optional<TicketName>& ticket);

  // Removes the bell of a client that has neither ticket nor lease.
  void remove_bell(const std::string& id);

  // Is `bell` still the file bell-`id` at the harbour's path? If not, another process deleted it or
  // the whole directory, and the client must put its files back.
  bool has_bell(const std::string& id, int bell) const;
  // Does the ticket's file exist? Always true with a server: there a caller watches the bell.
  bool has_ticket(const TicketName& name) const;
  // Does the file of this lease of the process's user exist?
  bool has_lease(const std::string& id) const;
  // The record in that file; nullopt: it does not exist, or is not a whole record of this lease.
  // Without the lock: a record is replaced as a whole.
  std::optional<Record> read_own_lease(const std::string& id) const;
  // Did the owner or root end this lease of the process's user from outside? Only a lease with
  // HolderKind::shell can be ended so.
  bool is_lease_ended(const std::string& id) const;

  // Does the harbour have a server, which several hosts share?
  bool is_multi_host() const { return store_ != nullptr; }
  // Identifies this host's directory until the host is restarted. Two clients with the same id see
  // the same bells, so each can check whether the other lives. Empty without a server, where all
  // clients see the same bells.
  std::string directory_id() const;

  // The server's part of the harbour; null without a server. A client of a harbour with a server
  // must send heartbeats, and is rung from other hosts through the server; see RedisHostStore.
  RedisHostStore* store() { return store_.get(); }

  // Sets the modification time of a lease's record, which says when its GPUs were last used (see
  // Record::sampled).
  void touch_lease(const std::string& id) const;

 private:
  Harbour(HarbourLocation location, UniqueFd directory);
  bool is_still_at_path() const;

  HarbourLocation location_;
  UniqueFd directory_;
  std::unique_ptr<RedisHostStore> store_;
};

// Harbour::begin() for a caller that is not a client, and that calls ring_front(): the transaction
// knows the stopped processes at the front of the queue. To find these, it takes the shared lock
// for a moment before, and reads /proc after it has released the lock.
Result<std::unique_ptr<Transaction>> begin_to_ring_front(Harbour& harbour, LockMode mode);

}  // namespace berth
