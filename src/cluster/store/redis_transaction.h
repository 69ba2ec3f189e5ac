// A transaction of a Redis harbour.
//
// It reads the queue, the leases and the drains in one step and changes them in another. The server
// refuses the second step if another client has changed meanwhile what it rests on. The lock of
// this host's directory is not held during a round trip to the server: the snapshot is read before
// the lock is taken, and commit() drops the lock first.
//
// Besides its record in Redis, each lease has a file in the directory of its host, and each client
// has its bell there. So on its own host a lease lives exactly as long as its holder, and is known
// even if Redis has lost it. Every client with the URL can write any record into Redis. So for a
// lease that has its file here, the file alone determines its owner, what it holds, which lease it
// is part of, and whether it was ended. docs/redis.md describes the whole protocol.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/store/redis_store.h"
#include "harbour/directory_transaction.h"
#include "harbour/transaction.h"

namespace berth {

class RedisTransaction : public Transaction {
 public:
  // `local` is this host's directory, locked and listed after `snapshot` was read. `directory_id`
  // identifies it: if a client's record has the same one, its bell is here and shows whether the
  // client lives.
  RedisTransaction(RedisHostStore& store, StoreSnapshot snapshot,
                   std::unique_ptr<DirectoryTransaction> local, std::string directory_id);

  const std::vector<std::string>& lease_ids() const override { return lease_ids_; }
  const std::vector<TicketName>& queue() const override { return snapshot_.queue; }
  Result<std::optional<Client>> read_lease(const std::string& id) override;
  Result<std::optional<Client>> read_ticket(const TicketName& name) override;
  bool needs_more_tickets() const override { return needs_more_tickets_; }
  Result<std::vector<Client>> read_leases() override;
  Result<std::vector<Drain>> read_drains() override;
  // Redis does not identify users: only root may drain.
  Result<uid_t> harbour_owner() const override { return uid_t{0}; }
  bool is_ended(const std::string& id, const std::optional<TicketName>& ticket) override;
  Result<std::uint64_t> next_file_number() override;
  std::uint64_t next_epoch() const override { return snapshot_.epoch; }
  std::chrono::milliseconds recovery_time_left() const override {
    return snapshot_.recovery_time_left;
  }
  Result<void> write_lease(const Record& record) override;
  Result<void> replace_lease(const Record& record) override;
  void set_ticket_to_replace(const TicketName& name) override { change_.replaced_ticket = name.id; }
  Result<void> write_ticket(const Record& record, std::uint64_t order) override;
  bool has_name_conflict() const override { return local_->has_name_conflict(); }
  Result<void> write_drain(const Drain& drain) override;
  Result<bool> remove_drain(const std::string& uuid) override;
  void remove_ticket(const TicketName& name) override;
  void remove_old_id(const std::string& id) override { change_.tickets_to_remove.push_back(id); }
  Result<void> end_ticket(const TicketName& name) override;
  Result<void> end_lease(const Client& lease) override;
  void ring(const Client& client) override;
  const std::vector<IgnoredEntry>& ignored_entries() const override { return ignored_entries_; }
  void remove_leftovers() override;
  Result<bool> commit() override;
  TicketName current_ticket_name(const TicketName& written) const override;
  const std::vector<Record>& removed_leases() const override { return removed_leases_; }

 private:
  enum class EntryKind : std::uint8_t { lease, ticket };
  // The client of an entry in Redis. nullopt if it does not count: then ignored_entries_ says why,
  // and a dead client is noted for remove_leftovers().
  Result<std::optional<Client>> check_client(const StoreEntry& entry, EntryKind kind);
  Result<std::optional<Client>> check_client_by_bell(const StoreEntry& entry, Record record,
                                                     EntryKind kind);
  void renew_heartbeat(Client& local);
  void restore_lost_leases(const std::vector<Client>& local);
  // Removes the file of a lease that Redis did not accept.
  void withdraw_lease();
  void ignore_entry(const StoreEntry& entry, EntryKind kind, std::optional<uid_t> owner,
                    std::string problem, bool leftover = false);

  RedisHostStore& store_;
  StoreSnapshot snapshot_;
  std::unique_ptr<DirectoryTransaction> local_;
  std::string directory_id_;
  std::map<std::string, StoreEntry> leases_;   // by id
  std::map<std::string, StoreEntry> tickets_;  // those that were read, by id
  bool needs_more_tickets_ = false;
  std::vector<std::string> lease_ids_;
  std::vector<IgnoredEntry> ignored_entries_;
  StoreChange change_;
  std::optional<std::string> written_lease_id_;  // of the lease that this transaction wrote
  std::vector<std::pair<std::string, Record>> dead_leases_;  // JSON as read, record
  std::vector<std::string> dead_tickets_;
  std::vector<UniqueFd> local_bells_to_ring_;  // of leases that were ended
  std::vector<Record> removed_leases_;
  std::optional<std::uint64_t> order_;  // of the written ticket, after commit()
};

}  // namespace berth
