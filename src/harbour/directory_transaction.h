// The directory harbour under its lock.
//
// What is read here was true at one moment, because every client changes the harbour under the same
// lock. Every change is made at once. Nothing here opens a file of another process: that could
// block, and the whole host would wait.
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

// The tickets of one user: their number, and how much there is to read of them, are limited.
struct TicketTotals {
  static constexpr std::size_t kMaxTickets = 2000;
  static constexpr std::uint64_t kMaxBytes = 4 << 20;

  std::size_t count = 0;
  std::uint64_t bytes = 0;

  bool has_room_for(std::uint64_t size) const {
    return count < kMaxTickets && bytes + size <= kMaxBytes;
  }
  void add(std::uint64_t size) {
    ++count;
    bytes += size;
  }
  void remove(std::uint64_t size) {
    --count;
    bytes -= size;
  }
};

// What lies in the directory, by the files' names alone.
struct DirectoryListing {
  std::vector<std::string> leases;         // ids, sorted
  std::vector<TicketName> tickets;         // in the order of the queue
  std::vector<std::string> bells;          // ids
  std::vector<std::string> requests;       // ids, sorted, of tickets whose request has changed
  std::vector<std::string> drains;         // UUIDs, with '_' for '/'
  std::vector<std::string> unknown_names;  // names that are not berth's
  TicketTotals own_tickets{};              // of this process's user
};

class DirectoryTransaction : public Transaction {
 public:
  // `lock` is the harbour's directory, opened for this alone and locked; the lock ends with this.
  explicit DirectoryTransaction(PrivateFd lock);
  ~DirectoryTransaction() override;

  Result<void> list();
  const DirectoryListing& listing() const { return listing_; }
  // Earlier than with the destructor, for a caller that still has something slow to do.
  void unlock();

  const std::vector<std::string>& lease_ids() const override { return listing_.leases; }
  const std::vector<TicketName>& queue() const override { return listing_.tickets; }
  Result<std::optional<Client>> read_lease(const std::string& id) override;
  Result<std::optional<Client>> read_ticket(const TicketName& name) override;
  Result<std::vector<Client>> read_leases() override;
  Result<std::vector<Drain>> read_drains() override;
  Result<uid_t> harbour_owner() const override;
  bool is_ended(const std::string& id, const std::optional<TicketName>& ticket) override;
  Result<std::uint64_t> next_order() override;
  Result<void> write_lease(const Record& record) override;
  Result<void> write_ticket(const Record& record, std::uint64_t order) override;
  bool has_name_conflict() const override { return has_name_conflict_; }
  Result<void> write_drain(const Drain& drain) override;
  Result<bool> remove_drain(const std::string& uuid) override;
  void remove_ticket(const TicketName& name) override;
  // By the sticky bit of its record, which only the owner of the file and root can set: not even
  // the owner of the directory. It needs no space.
  Result<void> end_ticket(const TicketName& name) override;
  Result<void> end_lease(const Client& lease) override;
  void ring(const Client& client) override;
  const std::vector<IgnoredEntry>& ignored_entries() const override { return ignored_entries_; }
  // Of this user (root: of any), and a bounded number at a time.
  void remove_leftovers() override;
  Result<bool> commit() override { return true; }
  TicketName current_ticket_name(const TicketName& written) const override;
  const std::vector<Record>& removed_leases() const override { return removed_leases_; }

  int directory() const { return lock_.get(); }

 private:
  // The text of a record, or why there is none.
  struct FileText {
    std::string text;
    std::string problem;
  };
  // A record's file beside the live bell of its owner.
  struct LiveRecordFile {
    struct statx file_info {};
    uid_t owner = 0;
    FileText content;
    UniqueFd bell;
    std::string bell_problem;  // it cannot be opened, and counts as alive
  };

  void order_tickets();
  void apply_changed_request(Record& ticket, uid_t owner) const;
  bool is_own_file(const std::string& file) const;
  bool has_ticket_with_id(const std::string& id) const;
  Result<std::optional<LiveRecordFile>> find_live_record(const std::string& file,
                                                         const std::string& id);
  // What the kernel says of a file before it is opened (see stat_at()); nothing if there is none.
  Result<std::optional<struct statx>> stat_file(const std::string& file) const;
  Result<FileText> read_file(const std::string& file, const struct statx& file_info) const;
  Result<void> write_file(const std::string& file, const std::string& text);
  Result<void> replace_file(const std::string& file, const std::string& text);
  Result<void> set_ended_flag(const std::string& file, uid_t owner);
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

// Was a client of this owner's told to end? Says the mode of its record.
bool has_ended_flag(int directory, const std::string& id, const std::optional<TicketName>& ticket,
                    uid_t owner);

std::string lease_file_name(const std::string& id);
std::string ticket_file_name(const TicketName& name);
std::string request_file_name(const std::string& id);

}  // namespace berth
