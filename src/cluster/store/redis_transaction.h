// A transaction of a Redis harbour: its queue, leases and drains are read in one step and changed
// in another, which is refused if another client changed meanwhile what it rests on. The lock of
// this host's directory is not held while the server is asked: the first step comes before it, and
// commit() drops it.
//
// What Redis cannot know, this host's own directory does: there each client has its bell, and each
// lease a file beside the record in Redis. So on its own host a lease lives exactly as long as its
// holder does, and is known whatever Redis has lost. Every client with the URL can write any record
// into Redis: so for a lease that has its file here, the file alone says whose it is, what it
// holds, what it is part of and whether it was ended. docs/redis.md is the whole protocol.
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
  // `here` is this host's directory, locked and listed after `sight` was taken. `directory_id` names it:
  // of a client that has the same one, its bell says whether it lives.
  RedisTransaction(RedisHostStore& part, StoreSnapshot sight, std::unique_ptr<DirectoryTransaction> here,
                   std::string directory_id);

  const std::vector<std::string>& lease_ids() const override { return lease_ids_; }
  const std::vector<TicketName>& queue() const override { return sight_.queue; }
  Result<std::optional<Client>> lease(const std::string& id) override;
  Result<std::optional<Client>> ticket(const TicketName& name) override;
  bool lacks_tickets() const override { return lacks_tickets_; }
  Result<std::vector<Client>> leases() override;
  Result<std::vector<Drain>> drains() override;
  // Redis does not know who somebody is: root alone may.
  Result<uid_t> owner() const override { return uid_t{0}; }
  bool is_ended(const std::string& id, const std::optional<TicketName>& ticket) override;
  Result<std::uint64_t> next_order() override;
  std::uint64_t next_epoch() const override { return sight_.epoch; }
  std::chrono::milliseconds settles() const override { return sight_.settles; }
  Result<void> write_lease(const Record& record) override;
  void take_place_of(const TicketName& name) override { change_.instead_of = name.id; }
  Result<void> write_ticket(const Record& record, std::uint64_t order) override;
  bool name_was_taken() const override { return here_->name_was_taken(); }
  Result<void> write_drain(const Drain& drain) override;
  Result<bool> remove_drain(const std::string& uuid) override;
  void remove_ticket(const TicketName& name) override;
  void give_up_id(const std::string& id) override { change_.remove_tickets.push_back(id); }
  Result<void> end_ticket(const TicketName& name) override;
  Result<void> end_lease(const Client& lease) override;
  void ring(const Client& client) override;
  const std::vector<IgnoredEntry>& ignored_entries() const override { return oddities_; }
  void tidy() override;
  Result<bool> commit() override;
  TicketName place(const TicketName& written) const override;
  const std::vector<Record>& cleared() const override { return cleared_; }

 private:
  enum class Kind : std::uint8_t { lease, ticket };
  Result<std::optional<Client>> judge(const StoreEntry& entry, Kind kind);
  Result<std::optional<Client>> judge_by_bell(const StoreEntry& entry, Record record, Kind kind);
  void beat_for(Client& here);
  void put_back_lost(const std::vector<Client>& here);
  void withdraw();
  void ignore(const StoreEntry& entry, Kind kind, std::optional<uid_t> owner, std::string problem,
              bool leftover = false);

  RedisHostStore& part_;
  StoreSnapshot sight_;
  std::unique_ptr<DirectoryTransaction> here_;
  std::string witness_;
  std::map<std::string, StoreEntry> leases_;   // by id
  std::map<std::string, StoreEntry> tickets_;  // that were read, by id
  bool lacks_tickets_ = false;
  std::vector<std::string> lease_ids_;
  std::vector<IgnoredEntry> oddities_;
  StoreChange change_;
  std::optional<std::string> lease_file_;             // the id of a lease that was written here
  std::vector<std::pair<std::string, Record>> dead_;  // leases, by their JSON
  std::vector<std::string> dead_tickets_;
  std::vector<UniqueFd> rung_here_;  // by their bells, too
  std::vector<Record> cleared_;
  std::optional<std::uint64_t> order_;
};

}  // namespace berth
