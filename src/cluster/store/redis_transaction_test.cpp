// Tests transactions in a real Redis: refused commits, entries that count or not, lost data.
#include "cluster/store/redis_transaction.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

#include "cluster/redis/testing/redis_server.h"
#include "harbour/bell.h"
#include "harbour/file_names.h"
#include "harbour/harbour.h"

namespace berth {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

struct TestClient {
  Record record;
  PrivateFd bell;
};

class RedisTransactionTest : public ::testing::Test {
 protected:
  RedisTransactionTest() : harbour_(open(folder_.path())), redis_(server_.connect()) {}

  // Ends the recovery time, as if all clients had put back what was lost.
  void finish_recovery() {
    const auto server_epoch = redis_.call({"GET", "berth:born"})->text();
    ASSERT_TRUE(
        redis_.call({"SET", "berth:born", server_epoch.substr(0, server_epoch.find(' ')) + " 1"}));
  }

  Harbour open(const std::string& folder, std::chrono::milliseconds ttl = 45s) const {
    fs::permissions(folder, static_cast<fs::perms>(01777));
    HarbourLocation where{folder, true};
    where.url = server_.url();
    where.url->ttl = ttl;
    where.host = "here";
    return std::move(*Harbour::open(where));
  }

  static std::unique_ptr<Transaction> begin(Harbour& harbour, const std::string& client = "") {
    auto transaction = harbour.begin(LockMode::exclusive, {}, client);
    EXPECT_TRUE(transaction) << transaction.error().message;
    return std::move(*transaction);
  }
  std::unique_ptr<Transaction> begin() { return begin(harbour_); }

  // A client with a bell, and without a ticket or lease.
  static TestClient make_client(Harbour& harbour) {
    auto bell = harbour.make_bell();
    TestClient one;
    one.record.id = bell->id;
    one.record.uid = ::geteuid();
    one.record.pid = ::getpid();
    one.record.since = std::chrono::system_clock::now();
    one.record.directory_id = harbour.directory_id();
    one.bell = std::move(bell->fd);
    return one;
  }

  static Result<void> write_claim(Transaction& transaction, Record& record,
                                  const std::string& uuid) {
    record.uuids = {uuid};
    record.granted = std::chrono::system_clock::now();
    record.epoch = transaction.next_epoch();
    return transaction.write_lease(record);
  }

  TestClient make_holder(Harbour& harbour, const std::string& uuid) {
    TestClient one = make_client(harbour);
    const auto transaction = begin(harbour, one.record.id);
    EXPECT_TRUE(write_claim(*transaction, one.record, uuid));
    EXPECT_TRUE(transaction->commit().value_or(false));
    return one;
  }

  TicketName enqueue(TestClient& one) {
    const auto transaction = begin(harbour_, one.record.id);
    const auto order = transaction->next_file_number();
    EXPECT_TRUE(transaction->write_ticket(one.record, *order));
    EXPECT_TRUE(transaction->commit().value_or(false));
    return transaction->current_ticket_name({*order, one.record.id});
  }

  bool has_file(const std::string& name) const { return fs::exists(folder_.path() + "/" + name); }

  testing::RedisServer server_;
  testing::TemporaryFolder folder_;
  Harbour harbour_;
  RedisConnection redis_;
};

TEST_F(RedisTransactionTest, a_lease_lives_as_long_as_its_bell) {
  TestClient alice = make_holder(harbour_, "GPU-1");
  EXPECT_EQ(begin()->read_leases()->size(), 1U);
  alice.bell.reset();
  EXPECT_EQ(begin()->read_leases()->size(), 0U);
}

TEST_F(RedisTransactionTest, of_two_clients_with_the_same_snapshot_one_fails_and_leaves_nothing) {
  TestClient alice = make_client(harbour_);
  TestClient bob = make_client(harbour_);
  Harbour other = open(folder_.path());
  // Both clients read before one of them writes: the lock of the host is not held in between.
  auto snapshot = harbour_.store()->read_snapshot(alice.record.id, harbour_.directory_id());
  const auto second = begin(other, bob.record.id);
  ASSERT_TRUE(write_claim(*second, bob.record, "GPU-1"));
  ASSERT_TRUE(second->commit().value_or(false));
  RedisTransaction first(*harbour_.store(), std::move(*snapshot),
                         std::move(*harbour_.begin_directory(LockMode::exclusive, {})),
                         harbour_.directory_id());
  ASSERT_TRUE(write_claim(first, alice.record, "GPU-2"));
  EXPECT_TRUE(has_file(lease_file_name(alice.record.id)));
  const auto done = first.commit();
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_FALSE(*done);
  EXPECT_FALSE(has_file(lease_file_name(alice.record.id)));
  EXPECT_EQ(begin()->read_leases()->size(), 1U);
}

TEST_F(RedisTransactionTest, a_client_without_a_ticket_fails_if_another_joins_the_queue) {
  TestClient alice = make_client(harbour_);
  auto snapshot = harbour_.store()->read_snapshot(alice.record.id, harbour_.directory_id());
  TestClient bob = make_client(harbour_);
  enqueue(bob);
  RedisTransaction first(*harbour_.store(), std::move(*snapshot),
                         std::move(*harbour_.begin_directory(LockMode::exclusive, {})),
                         harbour_.directory_id());
  ASSERT_TRUE(write_claim(first, alice.record, "GPU-1"));
  EXPECT_FALSE(first.commit().value_or(true));
}

TEST_F(RedisTransactionTest, a_commit_whose_reply_was_lost_may_be_repeated) {
  TestClient alice = make_client(harbour_);
  const auto snapshot = harbour_.store()->read_snapshot(alice.record.id, harbour_.directory_id());
  StoreChange change;
  change.id = alice.record.id;
  change.version = snapshot->version;
  change.epoch = snapshot->epoch;
  change.server_epoch = snapshot->server_epoch;
  alice.record.uuids = {"GPU-1"};
  alice.record.epoch = snapshot->epoch;
  change.lease = format_record(alice.record);
  for (int i = 0; i < 2; ++i) {
    const auto outcome = harbour_.store()->commit(change);
    ASSERT_TRUE(outcome) << outcome.error().message;
    EXPECT_TRUE(outcome->committed);
  }
  EXPECT_EQ(begin()->read_leases()->size(), 1U);
  StoreChange ticket;
  ticket.id = "abcdefgh";
  ticket.ticket = "{}";
  const auto first = harbour_.store()->commit(ticket);
  const auto again = harbour_.store()->commit(ticket);
  EXPECT_TRUE(first->order);
  EXPECT_EQ(first->order, again->order);
}

TEST_F(RedisTransactionTest, tickets_keep_their_order_after_a_data_loss) {
  TestClient alice = make_client(harbour_);
  TestClient bob = make_client(harbour_);
  const TicketName first = enqueue(alice);
  const TicketName second = enqueue(bob);
  EXPECT_LT(first.order, second.order);
  ASSERT_TRUE(redis_.call({"FLUSHALL"}));
  std::this_thread::sleep_for(2ms);  // without the counter, orders come from the clock, in ms
  TestClient carol = make_client(harbour_);
  enqueue(carol);
  const auto transaction = begin(harbour_, alice.record.id);
  ASSERT_TRUE(transaction->write_ticket(alice.record, first.order));
  ASSERT_TRUE(transaction->commit().value_or(false));
  EXPECT_EQ(begin()->queue().front().id, alice.record.id);
}

TEST_F(RedisTransactionTest, the_next_transaction_reads_more_of_a_long_queue) {
  constexpr int kLength = 800;
  RedisCommand queue{"ZADD", "berth:here:queue"};
  for (int i = 0; i < kLength; ++i) {
    std::string id = "aaaaa";
    for (int rest = i, digit = 0; digit < 3; ++digit, rest /= 10) {
      id += static_cast<char>('a' + rest % 10 + (rest % 10 >= 8 ? 8 : 0));
    }
    queue.insert(queue.end(), {std::to_string(i + 1), id});
  }
  ASSERT_TRUE(redis_.call(queue));
  const auto reads_all = [&] {
    const auto transaction = begin(harbour_, "cccccccc");
    EXPECT_EQ(transaction->queue().size(), kLength);
    for (const TicketName& name : transaction->queue()) {
      const auto ticket = transaction->read_ticket(name);
      EXPECT_EQ(transaction->needs_more_tickets(), !ticket);
      if (!ticket) return false;
    }
    return true;
  };
  int tries = 1;
  while (!reads_all()) ASSERT_LT(++tries, 6);
  EXPECT_GT(tries, 1);
  EXPECT_TRUE(reads_all());  // the range is kept for the next transaction
  for (int i = 0; i < 30; ++i) begin(harbour_, "cccccccc");
  EXPECT_FALSE(reads_all());  // the range shrinks if it is not needed
}

TEST_F(RedisTransactionTest, a_ticket_without_a_record_is_reported) {
  ASSERT_TRUE(redis_.call({"ZADD", "berth:here:queue", "1", "aaaaaaaa"}));
  for (const char* client : {"", "cccccccc"}) {
    const auto transaction = begin(harbour_, client);
    ASSERT_EQ(transaction->queue().size(), 1U);
    const auto ticket = transaction->read_ticket(transaction->queue().front());
    ASSERT_TRUE(ticket);
    EXPECT_FALSE(*ticket);
    ASSERT_EQ(transaction->ignored_entries().size(), 1U);
    EXPECT_EQ(transaction->ignored_entries().front().file, "ticket aaaaaaaa");
  }
}

TEST_F(RedisTransactionTest, a_replaced_id_is_removed_by_the_commit) {
  TestClient alice = make_client(harbour_);
  const TicketName place = enqueue(alice);
  const auto transaction = begin(harbour_, alice.record.id);
  harbour_.remove_client_files(alice.record.id, place);
  transaction->remove_old_id(alice.record.id);
  TestClient renamed = make_client(harbour_);
  ASSERT_TRUE(write_claim(*transaction, renamed.record, "GPU-1"));
  transaction->remove_leftovers();
  EXPECT_EQ(redis_.call({"ZCARD", "berth:here:queue"})->integer(), 1);
  ASSERT_TRUE(transaction->commit().value_or(false));
  EXPECT_EQ(redis_.call({"ZCARD", "berth:here:queue"})->integer(), 0);
  EXPECT_EQ(redis_.call({"HLEN", "berth:here:tickets"})->integer(), 0);
  EXPECT_EQ(begin()->read_leases()->size(), 1U);
}

TEST_F(RedisTransactionTest, leases_lost_by_redis_still_count_and_are_restored) {
  TestClient alice = make_holder(harbour_, "GPU-1");
  ASSERT_TRUE(redis_.call({"FLUSHALL"}));
  EXPECT_EQ(begin()->read_leases()->size(), 1U);
  // A young lease may not have been committed yet: other clients do not restore it.
  auto transaction = begin();
  ASSERT_TRUE(transaction->read_leases());
  ASSERT_TRUE(transaction->commit());
  EXPECT_EQ(redis_.call({"HLEN", "berth:here:leases"})->integer(), 0);
  harbour_.remove_client(alice.record.id, std::nullopt);
  TestClient bob = make_client(harbour_);
  transaction = begin(harbour_, bob.record.id);
  bob.record.uuids = {"GPU-2"};
  bob.record.granted = std::chrono::system_clock::now() - 1h;
  bob.record.epoch = transaction->next_epoch();
  ASSERT_TRUE(transaction->write_lease(bob.record));
  ASSERT_TRUE(transaction->commit().value_or(false));
  ASSERT_TRUE(redis_.call({"FLUSHALL"}));
  transaction = begin();
  EXPECT_EQ(transaction->read_leases()->size(), 1U);
  EXPECT_TRUE(transaction->commit().value_or(false));
  EXPECT_EQ(redis_.call({"HLEN", "berth:here:leases"})->integer(), 1);
}

TEST_F(RedisTransactionTest, nothing_is_granted_during_recovery) {
  EXPECT_GT(begin(harbour_, "cccccccc")->recovery_time_left().count(), 0);  // a new server
  finish_recovery();
  EXPECT_EQ(begin(harbour_, "cccccccc")->recovery_time_left().count(), 0);
  TestClient alice = make_client(harbour_);
  const auto transaction = begin(harbour_, alice.record.id);
  ASSERT_TRUE(redis_.call({"FLUSHALL"}));
  ASSERT_TRUE(write_claim(*transaction, alice.record, "GPU-1"));
  EXPECT_FALSE(transaction->commit().value_or(true));  // the snapshot is from before the loss
  EXPECT_GT(begin(harbour_, "cccccccc")->recovery_time_left().count(), 0);
  ASSERT_TRUE(redis_.call({"SET", "berth:born", "anotherrun 1"}));
  EXPECT_GT(begin(harbour_, "cccccccc")->recovery_time_left().count(), 0);  // a restarted server
}

TEST_F(RedisTransactionTest, a_server_outage_does_not_expire_clients) {
  const testing::TemporaryFolder elsewhere;
  Harbour other = open(elsewhere.path());
  const TestClient alice = make_holder(other, "GPU-1");
  finish_recovery();
  ASSERT_TRUE(redis_.call({"HSET", "berth:here:beats", alice.record.id, "1000"}));
  EXPECT_EQ(begin(harbour_, "cccccccc")->recovery_time_left().count(), 0);  // not an outage
  ASSERT_TRUE(redis_.call({"SET", "berth:here:heard", "1000"}));
  EXPECT_EQ(begin(other, "cccccccc")->recovery_time_left().count(), 0);  // it sees the bell
  EXPECT_GT(begin(harbour_, "cccccccc")->recovery_time_left().count(), 0);
}

TEST_F(RedisTransactionTest, a_foreign_queue_member_does_not_fail_commits) {
  for (const char* order : {"1e300", "inf", "7.5"}) {
    ASSERT_TRUE(redis_.call({"ZADD", "berth:here:queue", order, "another program's"}));
    make_holder(harbour_, "GPU-1");
  }
}

TEST_F(RedisTransactionTest, epochs_increase_even_after_data_loss) {
  const TestClient alice = make_holder(harbour_, "GPU-1");
  const TestClient bob = make_holder(harbour_, "GPU-2");
  EXPECT_LT(alice.record.epoch, bob.record.epoch);
  ASSERT_TRUE(redis_.call({"FLUSHALL"}));
  const TestClient carol = make_holder(harbour_, "GPU-3");
  EXPECT_LT(bob.record.epoch, carol.record.epoch);
}

TEST_F(RedisTransactionTest, epochs_exceed_those_of_restored_leases) {
  TestClient alice = make_client(harbour_);
  alice.record.uuids = {"GPU-1"};
  alice.record.epoch = 5'000'000'000'000'000;  // from a server whose clock was ahead
  StoreChange change;
  change.leases_to_restore.emplace_back(alice.record.id, format_record(alice.record));
  ASSERT_TRUE(harbour_.store()->commit(change));
  EXPECT_GT(begin()->next_epoch(), alice.record.epoch);
}

TEST_F(RedisTransactionTest, a_clock_set_back_does_not_block_grants_for_long) {
  TestClient alice = make_client(harbour_);
  (void)begin(harbour_, alice.record.id);
  const auto server_epoch = redis_.call({"GET", "berth:born"})->text();
  const std::string run = server_epoch.substr(0, server_epoch.find(' '));
  ASSERT_TRUE(redis_.call({"SET", "berth:born", run + " 99999999999999"}));
  EXPECT_LT(begin(harbour_, alice.record.id)->recovery_time_left(), 20s);  // not for years
  ASSERT_TRUE(redis_.call({"SET", "berth:born", run + " 1"}));
  ASSERT_TRUE(redis_.call({"SET", "berth:here:settles", "99999999999999"}));
  EXPECT_LT(begin(harbour_, alice.record.id)->recovery_time_left(), 20s);  // not for years
}

TEST_F(RedisTransactionTest, a_heartbeat_before_the_commit_keeps_the_client_alive) {
  testing::TemporaryFolder container;
  Harbour elsewhere = open(container.path());
  TestClient alice = make_holder(elsewhere, "GPU-1");
  ASSERT_TRUE(redis_.call({"HSET", "berth:here:beats", alice.record.id, "1"}));
  TestClient bob = make_client(harbour_);
  const auto transaction = begin(harbour_, bob.record.id);
  ASSERT_EQ(transaction->read_leases()->size(), 0U);
  ASSERT_TRUE(write_claim(*transaction, bob.record, "GPU-1"));
  transaction->remove_leftovers();
  ASSERT_TRUE(redis_.call({"HSET", "berth:here:beats", alice.record.id, "99999999999999"}));
  EXPECT_FALSE(transaction->commit().value_or(true));
  EXPECT_EQ(begin()->read_leases()->size(), 1U);
}

TEST_F(RedisTransactionTest, a_failover_invalidates_older_snapshots) {
  TestClient alice = make_client(harbour_);
  auto snapshot = harbour_.store()->read_snapshot(alice.record.id, harbour_.directory_id());
  // A replica that took over has the value of its former master.
  snapshot->server_epoch = "another 1";
  ASSERT_TRUE(redis_.call({"SET", "berth:born", snapshot->server_epoch}));
  RedisTransaction transaction(*harbour_.store(), std::move(*snapshot),
                               std::move(*harbour_.begin_directory(LockMode::exclusive, {})),
                               harbour_.directory_id());
  ASSERT_TRUE(write_claim(transaction, alice.record, "GPU-1"));
  EXPECT_FALSE(transaction.commit().value_or(true));
  EXPECT_EQ(redis_.call({"HLEN", "berth:here:leases"})->integer(), 0);
  EXPECT_FALSE(has_file(lease_file_name(alice.record.id)));
}

TEST_F(RedisTransactionTest, a_client_that_left_leaves_no_keys) {
  TestClient alice = make_client(harbour_);
  StoreChange change;
  change.rings = {alice.record.id};
  change.heartbeats = {alice.record.id};
  ASSERT_TRUE(harbour_.store()->commit(change));
  EXPECT_EQ(redis_.call({"HLEN", "berth:here:rung"})->integer(), 0);
  EXPECT_EQ(redis_.call({"HLEN", "berth:here:beats"})->integer(), 0);
}

TEST_F(RedisTransactionTest, heartbeats_decide_for_clients_of_another_directory) {
  const testing::TemporaryFolder elsewhere;
  Harbour other = open(elsewhere.path());
  TestClient alice = make_holder(other, "GPU-1");
  alice.bell.reset();  // harbour_ cannot see the bells of another directory
  auto leases = begin()->read_leases();
  ASSERT_EQ(leases->size(), 1U);
  EXPECT_FALSE(leases->front().bell);
  EXPECT_TRUE(leases->front().expires_in);
  ASSERT_TRUE(redis_.call({"HSET", "berth:here:beats", alice.record.id, "1000"}));
  const auto transaction = begin();
  EXPECT_EQ(transaction->read_leases()->size(), 0U);
  transaction->remove_leftovers();
  ASSERT_TRUE(transaction->commit().value_or(false));
  ASSERT_EQ(transaction->removed_leases().size(), 1U);
  EXPECT_EQ(transaction->removed_leases().front().id, alice.record.id);
}

TEST_F(RedisTransactionTest, leases_of_clients_without_redis_count) {
  HarbourLocation where{folder_.path(), true};
  auto plain = Harbour::open(where);
  TestClient alice = make_client(*plain);
  alice.record.uuids = {"GPU-1"};
  ASSERT_TRUE((*plain->begin(LockMode::exclusive, {}))->write_lease(alice.record));
  EXPECT_EQ(begin()->read_leases()->size(), 1U);
  const TestClient bob = make_holder(harbour_, "GPU-2");
  EXPECT_EQ((*plain->begin(LockMode::exclusive, {}))->read_leases()->size(), 2U);
}

TEST_F(RedisTransactionTest, a_cancelled_ticket_is_not_granted) {
  TestClient alice = make_client(harbour_);
  const TicketName place = enqueue(alice);
  auto snapshot = harbour_.store()->read_snapshot(alice.record.id, harbour_.directory_id());
  const auto ending = begin();
  ASSERT_TRUE(ending->end_ticket(place));
  ASSERT_TRUE(ending->commit().value_or(false));
  EXPECT_TRUE(begin(harbour_, alice.record.id)->is_ended(alice.record.id, place));
  EXPECT_TRUE(begin()->queue().empty());
  RedisTransaction late(*harbour_.store(), std::move(*snapshot),
                        std::move(*harbour_.begin_directory(LockMode::exclusive, {})),
                        harbour_.directory_id());
  ASSERT_TRUE(write_claim(late, alice.record, "GPU-1"));
  EXPECT_FALSE(late.commit().value_or(true));
}

TEST_F(RedisTransactionTest, a_key_in_redis_ends_no_lease) {
  const TestClient alice = make_holder(harbour_, "GPU-1");
  ASSERT_TRUE(redis_.call({"SET", "berth:ended:" + alice.record.id, "1"}));
  ASSERT_TRUE(harbour_.store()->send_lease_heartbeat(alice.record.id));
  std::optional<Result<HeartbeatReply>> news;
  while (!(news = harbour_.store()->poll_heartbeat())) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(news->value(), HeartbeatReply::accepted);
  EXPECT_FALSE(begin(harbour_, alice.record.id)->is_ended(alice.record.id, std::nullopt));
  StoreChange change;
  change.tickets_to_end = {alice.record.id};
  ASSERT_TRUE(harbour_.store()->commit(change));
  EXPECT_EQ(redis_.call({"HLEN", "berth:here:leases"})->integer(), 1);
}

TEST_F(RedisTransactionTest, a_lease_is_ended_by_its_file_alone) {
  const testing::TemporaryFolder container;
  Harbour elsewhere = open(container.path());
  const TestClient alice = make_holder(elsewhere, "GPU-1");
  for (Harbour* harbour : {&harbour_, &elsewhere}) {
    const auto transaction = begin(*harbour);
    const auto lease = transaction->read_lease(alice.record.id);
    ASSERT_TRUE(lease && *lease);
    const bool here = harbour == &elsewhere;
    EXPECT_EQ(transaction->end_lease(**lease).has_value(), here);
    EXPECT_TRUE(transaction->commit());
    EXPECT_EQ(begin()->read_leases()->size(), here ? 0U : 1U);
  }
  EXPECT_TRUE(elsewhere.is_lease_ended(alice.record.id));
}

TEST_F(RedisTransactionTest, a_local_lease_can_only_be_nested_in_a_local_lease) {
  TestClient alice = make_holder(harbour_, "GPU-1");
  TestClient inner = make_client(harbour_);
  inner.record.parent_lease = alice.record.id;
  auto transaction = begin(harbour_, inner.record.id);
  ASSERT_TRUE(write_claim(*transaction, inner.record, "GPU-1"));
  ASSERT_TRUE(transaction->commit().value_or(false));
  const auto within = [&] {
    const auto leases = begin()->read_leases();
    for (const Client& lease : *leases) {
      if (lease.record.id == inner.record.id) return lease.record.parent_lease;
    }
    return std::string("it does not count");
  };
  EXPECT_EQ(within(), alice.record.id);
  harbour_.remove_client(alice.record.id, std::nullopt);
  // A forged lease with that id, which claims that its bell is elsewhere, or here.
  for (const char* directory_id : {"elsewhere", ""}) {
    alice.record.directory_id = *directory_id == '\0' ? harbour_.directory_id() : directory_id;
    const std::string text = format_record(alice.record);
    ASSERT_TRUE(redis_.call({"HSET", "berth:here:leases", alice.record.id, text}));
    ASSERT_TRUE(redis_.call({"HSET", "berth:here:beats", alice.record.id, "99999999999999"}));
    EXPECT_EQ(within(), "");
  }
}

TEST_F(RedisTransactionTest, the_owner_comes_from_the_bell_and_not_from_redis) {
  TestClient alice = make_client(harbour_);
  const TicketName place = enqueue(alice);
  alice.record.uid = 4711;
  const std::string text = format_record(alice.record);
  ASSERT_TRUE(redis_.call({"HSET", "berth:here:tickets", alice.record.id, text}));
  const auto transaction = begin();
  const auto ticket = transaction->read_ticket(place);
  ASSERT_TRUE(ticket && *ticket);
  EXPECT_EQ((*ticket)->record.uid, ::geteuid());
}

TEST_F(RedisTransactionTest, a_release_rings_the_first_live_ticket) {
  TestClient alice = make_holder(harbour_, "GPU-1");
  TestClient bob = make_client(harbour_);
  TestClient carol = make_client(harbour_);
  enqueue(bob);
  enqueue(carol);
  harbour_.remove_client(alice.record.id, std::nullopt);
  EXPECT_EQ(redis_.call({"LLEN", "berth:ring:" + bob.record.id})->integer(), 1);
  EXPECT_EQ(redis_.call({"LLEN", "berth:ring:" + carol.record.id})->integer(), 0);
  harbour_.remove_client(bob.record.id, TicketName{1, bob.record.id});
  EXPECT_EQ(redis_.call({"LLEN", "berth:ring:" + carol.record.id})->integer(), 1);
}

// The client of the cancelled ticket may be stopped a moment later, and then wakes no other client.
TEST_F(RedisTransactionTest, a_cancellation_rings_the_ticket_behind) {
  TestClient first = make_client(harbour_);
  TestClient second = make_client(harbour_);
  const TicketName cancelled = enqueue(first);
  enqueue(second);
  ASSERT_TRUE(redis_.call({"DEL", "berth:ring:" + second.record.id}));
  const auto transaction = begin();
  ASSERT_TRUE(transaction->end_ticket(cancelled));
  ASSERT_TRUE(transaction->ring_front());
  ASSERT_TRUE(transaction->commit().value_or(false));
  EXPECT_EQ(redis_.call({"LLEN", "berth:ring:" + second.record.id})->integer(), 1);
}

TEST_F(RedisTransactionTest, invalid_entries_are_ignored_and_reported) {
  const std::string huge(10 << 20, 'x');
  for (const std::string& value : {std::string("{}"), std::string("\xff\xfe"), huge}) {
    ASSERT_TRUE(redis_.call({"HSET", "berth:here:leases", "aaaaaaaa", value}));
    ASSERT_TRUE(redis_.call({"HSET", "berth:here:leases", "not an id", value}));
    ASSERT_TRUE(redis_.call({"HSET", "berth:here:tickets", "bbbbbbbb", value}));
    ASSERT_TRUE(redis_.call({"ZADD", "berth:here:queue", "7", "bbbbbbbb"}));
    for (const char* client : {"", "cccccccc"}) {
      const auto transaction = begin(harbour_, client);
      EXPECT_EQ(transaction->read_leases()->size(), 0U);
      EXPECT_FALSE(*transaction->read_ticket({7, "bbbbbbbb"}));
      EXPECT_GE(transaction->ignored_entries().size(), 2U);
    }
  }
}

TEST_F(RedisTransactionTest, a_drain_that_cannot_be_read_is_a_drain) {
  ASSERT_TRUE(redis_.call({"HSET", "berth:here:drains", "GPU-1", "?"}));
  const auto drains = begin()->read_drains();
  ASSERT_EQ(drains->size(), 1U);
  EXPECT_EQ(drains->front().uuid, "GPU-1");
}

TEST(SharedDrain, only_a_record_of_the_same_gpu_is_accepted) {
  const std::string text = format_drain({"GPU-1", 0, "dust", {}});
  const auto drain = parse_shared_drain("GPU-1", text);
  ASSERT_TRUE(drain) << drain.error().message;
  EXPECT_EQ(drain->reason, "dust");
  const auto other = parse_shared_drain("GPU-2", text);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().kind, ErrorKind::io);
  EXPECT_FALSE(parse_shared_drain("GPU-1", "?"));
  EXPECT_EQ(unreadable_drain("GPU-2").uuid, "GPU-2");
}

TEST_F(RedisTransactionTest, keys_of_another_type_are_an_error) {
  ASSERT_TRUE(redis_.call({"SET", "berth:here:leases", "mine"}));
  for (const char* client : {"", "cccccccc"}) {
    const auto transaction = harbour_.begin(LockMode::exclusive, {}, client);
    ASSERT_FALSE(transaction);
    EXPECT_EQ(transaction.error().kind, ErrorKind::io);
  }
}

TEST_F(RedisTransactionTest, an_unavailable_server_fails_the_commit_and_leaves_no_file) {
  TestClient alice = make_client(harbour_);
  auto transaction = begin(harbour_, alice.record.id);
  ASSERT_TRUE(write_claim(*transaction, alice.record, "GPU-1"));
  server_.kill();
  const auto done = transaction->commit();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().kind, ErrorKind::unavailable);
  EXPECT_FALSE(has_file(lease_file_name(alice.record.id)));
}

}  // namespace
}  // namespace berth
