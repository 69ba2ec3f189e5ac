// A transaction on the harbour's directory.
//
// It holds the directory's lock, and every client changes the directory only under that lock. So
// everything that a transaction reads was true at one moment. It makes each change at once, not in
// commit(). It never opens a file that can block (a file in /proc of another process, a device, a
// mounted file system of a user): all clients of the host would wait. It trusts no file: any user
// can create any file in the directory. Entries that do not count are in ignored_entries().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <sys/types.h>
#include <vector>

#include "base/private_fd.h"
#include "base/result.h"
#include "harbour/directory_listing.h"
#include "harbour/record_file.h"
#include "harbour/transaction.h"

namespace berth {

// A client makes its bell before it writes its record. A bell without a record is a leftover only
// at this age.
constexpr time_t kOrphanBellSeconds = 60;

class DirectoryTransaction : public Transaction {
 public:
  // `lock` is the harbour's directory, opened for this transaction alone and locked. The destructor
  // releases the lock. Call list() before anything else.
  explicit DirectoryTransaction(PrivateFd lock);
  ~DirectoryTransaction() override;

  // Reads the names of the directory's entries, and sorts the tickets.
  Result<void> list();
  const DirectoryListing& listing() const { return listing_; }
  // Releases the lock before the destructor does, for a caller that continues with something slow.
  void unlock();

  const std::vector<std::string>& lease_ids() const override { return listing_.leases; }
  const std::vector<TicketName>& queue() const override { return listing_.tickets; }
  Result<std::optional<Client>> read_lease(const std::string& id) override;
  Result<std::optional<Client>> read_ticket(const TicketName& name) override;
  std::optional<Client> read_unproved_ticket(const TicketName& name) override;
  Result<std::vector<Client>> read_leases() override;
  Result<std::vector<Drain>> read_drains() override;
  Result<uid_t> harbour_owner() const override;
  bool is_ended(const std::string& id, const std::optional<TicketName>& ticket) override;
  Result<std::uint64_t> next_file_number() override;
  Result<void> write_lease(const Record& record) override;
  Result<void> replace_lease(const Record& record) override;
  Result<void> write_ticket(const Record& record, std::uint64_t file_number) override;
  bool has_name_conflict() const override { return has_name_conflict_; }
  Result<void> write_drain(const Drain& drain) override;
  Result<bool> remove_drain(const std::string& uuid) override;
  void remove_ticket(const TicketName& name) override;
  // These two set kEndedFlag of the record.
  Result<void> end_ticket(const TicketName& name) override;
  Result<void> end_lease(const Client& lease) override;
  void ring(const Client& client) override;
  const std::vector<IgnoredEntry>& ignored_entries() const override { return ignored_entries_; }
  // Removes files of this process's user; run as root, files of any user.
  void remove_leftovers() override;
  Result<bool> commit() override { return true; }
  TicketName current_ticket_name(const TicketName& written) const override;
  const std::vector<Record>& removed_leases() const override { return removed_leases_; }

  int directory() const { return lock_.get(); }

 private:
  // The file of a record whose owner has a live bell of the same id.
  struct LiveRecordFile {
    struct statx file_info {};
    uid_t owner = 0;
    FileContent content;
    UniqueFd bell;
    std::string bell_problem;  // not empty if the bell cannot be opened (PeerBell::State::unknown)
  };

  Result<Client> parse_ticket(const TicketName& name, const struct statx& file_info, uid_t owner,
                              const FileContent& content) const;
  void apply_changed_request(Client& client) const;
  bool is_own_file(const std::string& file) const;
  bool has_ticket_with_id(const std::string& id) const;
  Result<std::optional<LiveRecordFile>> find_live_record(const std::string& file,
                                                         const std::string& id);
  std::optional<Record> read_dead_lease(const IgnoredEntry& entry, const std::string& id) const;
  void remove_dead_client(const IgnoredEntry& entry);
  void remove_orphan_bells();
  void remove_orphan_requests();
  void remove_dead_tickets();
  void ignore(const std::string& file, std::optional<uid_t> owner, std::string problem,
              bool leftover = false);
  void ignore_live(const std::string& file, uid_t owner, std::string problem);

  PrivateFd lock_;
  bool locked_ = true;
  DirectoryListing listing_;
  std::vector<IgnoredEntry> ignored_entries_;
  std::vector<Record> removed_leases_;
  bool has_name_conflict_ = false;
};

}  // namespace berth
