// The directory harbour under its lock.
//
// Whatever is read here was true at one moment, because everybody changes the harbour under the
// same lock. Every change is made at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <sys/types.h>
#include <vector>

#include "base/private_fd.h"
#include "base/result.h"
#include "harbour/transaction.h"

namespace berth {

// What lies in the directory, by the files' names alone.
struct Listing {
  std::vector<std::string> leases;  // ids
  std::vector<TicketName> tickets;  // in the order of the queue
  std::vector<std::string> bells;   // ids
  std::vector<std::string> drains;  // UUIDs, with '_' for '/'
  std::vector<std::string> ended;   // ids of clients that were told to end
  std::vector<std::string> others;  // names that are not ours
};

class DirectoryTransaction : public Transaction {
 public:
  // `lock` is the harbour's directory, opened for this alone and locked; the lock ends with this.
  explicit DirectoryTransaction(PrivateFd lock);
  ~DirectoryTransaction() override;

  Result<void> list();
  const Listing& listing() const { return listing_; }
  // Before this ends, for who has something slow to do yet.
  void unlock();

  const std::vector<std::string>& lease_ids() const override { return listing_.leases; }
  const std::vector<TicketName>& queue() const override { return listing_.tickets; }
  Result<std::optional<Client>> lease(const std::string& id) override;
  Result<std::optional<Client>> ticket(const TicketName& name) override;
  Result<std::vector<Client>> leases() override;
  Result<std::vector<Drain>> drains() override;
  Result<uid_t> owner() const override;
  bool is_ended(const std::string& id, const std::optional<TicketName>& ticket) override;
  Result<std::uint64_t> next_order() override;
  Result<void> write_lease(const Record& record) override;
  Result<void> write_ticket(const Record& record, std::uint64_t order) override;
  bool name_was_taken() const override { return name_was_taken_; }
  Result<void> write_drain(const Drain& drain) override;
  Result<bool> remove_drain(const std::string& uuid) override;
  void remove_ticket(const TicketName& name) override;
  // By renaming its record to end-ID: that needs no space. (Where somebody planted end-ID: by
  // taking all its permissions away, which says the same.)
  Result<void> end_ticket(const TicketName& name) override;
  Result<void> end_lease(const Client& lease) override;
  void ring(const Client& client) override;
  const std::vector<Oddity>& oddities() const override { return oddities_; }
  // Of this user (root: of any).
  void tidy() override;
  Result<bool> commit() override { return true; }
  const std::vector<Record>& cleared() const override { return cleared_; }

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
  bool locked_ = true;
  Listing listing_;
  std::vector<Oddity> oddities_;
  std::vector<Record> cleared_;
  bool name_was_taken_ = false;
};

// Was a client of this owner's told to end? By its files in the directory.
bool was_ended(int directory, const std::string& id, const std::optional<TicketName>& ticket,
               uid_t owner);

std::string lease_name(const std::string& id);
std::string ticket_name(const TicketName& name);
std::string end_name(const std::string& id);

}  // namespace berth
