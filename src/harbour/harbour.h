// The harbour: where tickets and leases live. In one directory for all users of a host; or in a
// Redis server for several hosts, and then each host's directory has its bells and the files of its
// leases all the same (see redis_transaction.h).
//
// In the directory: per client there are two files that only their owner can write: a record and a
// bell. A record counts only beside a bell that is a FIFO of the same owner and has a reader;
// owners are those that the kernel reports. docs/harbour-protocol.md is the whole protocol.
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

class Harbour {
 public:
  // Makes the directory where nobody else has. Errors are ErrorKind::io.
  // `initialize` as for open_harbour_directory().
  static Result<Harbour> open(HarbourLocation location = harbour_location(),
                              const DirectoryInitializer& initialize = {});

  // The same, but makes nothing: nothing if there is no directory.
  static Result<std::optional<Harbour>> open_existing(
      HarbourLocation location = harbour_location());

  const HarbourLocation& location() const { return location_; }
  int directory() const { return directory_.get(); }

  // The directory's lock, and a listing of what is there. If the directory was replaced meanwhile,
  // the new one is locked (and made, if there is none). `client` is who decides, if it is one: its
  // rings so far are covered by what it sees.
  Result<std::unique_ptr<Transaction>> begin(LockMode mode, const LockOptions& lock_options,
                                             const std::string& client = "");
  // The same, by its files alone.
  Result<std::unique_ptr<DirectoryTransaction>> begin_directory(LockMode mode,
                                                                const LockOptions& lock_options);

  // Makes a bell with a new id, without the lock: nobody looks at a bell without a record. It
  // becomes what a fork may have, too, with the lease.
  struct OwnBell {
    std::string id;
    PrivateFd fd;
  };
  Result<OwnBell> make_bell();

  // Removes a client of ours that has ended. Needs no lock and no space; must not be called under
  // the lock, since it may wait for Redis.
  void remove_client(const std::string& id, const std::optional<TicketName>& ticket);
  // Only its files, which may be done under the lock.
  void remove_client_files(const std::string& id, const std::optional<TicketName>& ticket);

  // The same for a client that has neither ticket nor lease.
  void remove_bell(const std::string& id);

  // Does the client's bell (and so its place here) still exist? If not, somebody deleted it.
  bool has_bell(const std::string& id, int bell) const;
  bool has_ticket(const TicketName& name) const;  // as far as one must ask
  bool has_lease(const std::string& id) const;
  // Was this lease of ours told to end, by its owner or root? Only a shell's lease can be.
  bool is_lease_ended(const std::string& id) const;

  // Of several hosts?
  bool is_multi_host() const { return store_ != nullptr; }
  // Names this host's directory, since it was last started: who has the same id sees the same
  // bells. Empty where nobody else could be asked.
  std::string directory_id() const;

  // In a harbour of several hosts a client must say again and again that it lives, and can be rung
  // from elsewhere: see RedisHostStore. There is none in a directory.
  RedisHostStore* store() { return store_.get(); }

  // Tells whoever looks that a lease of ours is used: its record's time is then.
  void touch_lease(const std::string& id) const;

 private:
  Harbour(HarbourLocation location, UniqueFd directory);
  bool is_still_at_path() const;

  HarbourLocation location_;
  UniqueFd directory_;
  std::unique_ptr<RedisHostStore> store_;
};

// The processes at the front of the queue that the kernel calls stopped, for a transaction that is
// about to ring the first ticket. Takes the lock for a moment, and reads /proc without it.
Result<StoppedProcesses> find_stopped_processes(Harbour& harbour);

}  // namespace berth
