// The harbour under its lock: the tickets and leases as they are now, and the changes of one
// client.
//
// Whatever is read here was true at one moment, because everybody changes the harbour under the
// same lock. A client changes only its own files. It may be killed after any line: then its bell
// has no reader, and whatever it left behind counts for nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <sys/types.h>
#include <vector>

#include "base/private_fd.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "harbour/drain.h"
#include "harbour/record.h"

namespace berth {

struct TicketName {
  std::uint64_t order = 0;  // of the queue: lower came first
  std::string id;
  auto operator<=>(const TicketName&) const = default;
};

// What lies in the directory, by the files' names alone.
struct Listing {
  std::vector<std::string> leases;  // ids
  std::vector<TicketName> tickets;  // in the order of the queue
  std::vector<std::string> bells;   // ids
  std::vector<std::string> drains;  // UUIDs, with '_' for '/'
  std::vector<std::string> ended;   // ids of clients that were told to end
  std::vector<std::string> others;  // names that are not ours
};

// A live ticket or lease, and the way to ring it.
struct Client {
  Record record;
  UniqueFd bell;  // its writing end
};

// A file that does not count: its client is dead, or somebody planted it.
struct Oddity {
  std::string file;
  std::optional<uid_t> owner;
  std::string problem;
  bool leftover = false;  // of a dead client: harmless, and removed by its owner's next command
};

class Transaction {
 public:
  // `lock` is the harbour's directory, opened for this alone and locked; the lock ends with this.
  explicit Transaction(PrivateFd lock);
  Transaction(Transaction&&) = default;
  Transaction& operator=(Transaction&&) = default;
  ~Transaction();

  Result<void> list();
  const Listing& listing() const { return listing_; }

  // Nothing if it does not count: then oddities() says why. An Error means that nobody can say.
  Result<std::optional<Client>> lease(const std::string& id);
  Result<std::optional<Client>> ticket(const TicketName& name);
  // All that count. Those for which descriptors are short come without their bell: they count, and
  // cannot be watched.
  Result<std::vector<Client>> leases();
  Result<std::vector<Drain>> drains();
  // Whose directory this is. Beside root, only he may drain GPUs.
  Result<uid_t> owner() const;

  // The order of a ticket that arrives now: behind everybody who lives.
  Result<std::uint64_t> next_order();

  // The files of `record`'s client, which must have a bell. A name that is taken (planted) is an
  // Error, and so is a full disk; then nothing has changed.
  Result<void> write_lease(const Record& record);
  Result<void> write_ticket(const Record& record, std::uint64_t order);
  // Did the last write fail because there is a file of that name? Anybody can plant one, and only
  // he can remove it: then take another id.
  bool name_was_taken() const { return name_was_taken_; }
  Result<void> write_drain(const Drain& drain);  // replaces the one before it
  void remove_ticket(const TicketName& name);
  // Ends a ticket or lease of ours from outside, at once, by renaming its record to end-ID: that
  // needs no space, and tells its process why. (Where somebody planted end-ID: by taking all its
  // permissions away, which says the same.) Whoever is first in the queue must be rung then.
  Result<void> end_ticket(const TicketName& name);
  Result<void> end_lease(const std::string& id);
  // Rings the first ticket that can hear it: something changed that may let it through.
  Result<void> ring_front();
  // Forgets a drain; false if there was none.
  Result<bool> remove_drain(const std::string& uuid);

  // Stopped (SIGSTOP, Ctrl-Z): by the kernel's word where its PID means something to us. Or it was
  // rung and has not woken for a while.
  static bool is_stopped(const Client& client);

  const std::vector<Oddity>& oddities() const { return oddities_; }
  // Removes what dead clients of this user left behind (root: of any). Never needed for
  // correctness. Gives the leases among them, for the history.
  std::vector<Record> tidy();

  int directory() const { return lock_.get(); }

 private:
  Result<std::optional<Client>> client(const std::string& file, const std::string& id);
  // Is there a lease-ID, whoever made it and whether it counts or not?
  bool has_lease_file(const std::string& id) const;
  // What the kernel says of a record before it is opened; nothing if it cannot be one.
  Result<std::optional<struct stat>> look(const std::string& file);
  Result<std::optional<std::string>> read(const std::string& file, const struct stat& about);
  Result<void> write(const std::string& file, const std::string& text);
  Result<void> end(const std::string& file, const std::string& id);
  std::optional<Record> dead_lease(const Oddity& oddity, const std::string& id);
  void ignore(const std::string& file, std::optional<uid_t> owner, std::string problem,
              bool leftover = false);

  PrivateFd lock_;
  Listing listing_;
  std::vector<Oddity> oddities_;
  bool name_was_taken_ = false;
};

std::string lease_name(const std::string& id);
std::string ticket_name(const TicketName& name);
std::string end_name(const std::string& id);

}  // namespace berth
