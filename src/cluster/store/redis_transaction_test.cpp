// Transactions in a real Redis: who is outrun, what counts, what is put back.
#include "cluster/store/redis_transaction.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

#include "cluster/redis/testing/server.h"
#include "harbour/bell.h"
#include "harbour/harbour.h"

namespace berth {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

struct Person {
  Record record;
  PrivateFd bell;
};

class RedisTransactionTest : public ::testing::Test {
 protected:
  RedisTransactionTest() : harbour_(open(folder_.path())), redis_(server_.connect()) {}

  // As if everybody had had the time to put back what was lost.
  void settle() {
    const auto server_epoch = redis_.call({"GET", "berth:born"})->text();
    ASSERT_TRUE(redis_.call({"SET", "berth:born", server_epoch.substr(0, server_epoch.find(' ')) + " 1"}));
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

  // A client with a bell, and nothing else yet.
  static Person person(Harbour& harbour) {
    auto bell = harbour.make_bell();
    Person one;
    one.record.id = bell->id;
    one.record.uid = ::geteuid();
    one.record.pid = ::getpid();
    one.record.since = std::chrono::system_clock::now();
    one.record.directory_id = harbour.directory_id();
    one.bell = std::move(bell->fd);
    return one;
  }

  static Result<void> claim(Transaction& transaction, Record& record, const std::string& uuid) {
    record.uuids = {uuid};
    record.granted = std::chrono::system_clock::now();
    record.epoch = transaction.next_epoch();
    return transaction.write_lease(record);
  }

  Person holder(Harbour& harbour, const std::string& uuid) {
    Person one = person(harbour);
    const auto transaction = begin(harbour, one.record.id);
    EXPECT_TRUE(claim(*transaction, one.record, uuid));
    EXPECT_TRUE(transaction->commit().value_or(false));
    return one;
  }

  TicketName join(Person& one) {
    const auto transaction = begin(harbour_, one.record.id);
    const auto order = transaction->next_order();
    EXPECT_TRUE(transaction->write_ticket(one.record, *order));
    EXPECT_TRUE(transaction->commit().value_or(false));
    return transaction->place({*order, one.record.id});
  }

  bool has_file(const std::string& name) const { return fs::exists(folder_.path() + "/" + name); }

  testing::RedisServer server_;
  testing::TemporaryFolder folder_;
  Harbour harbour_;
  RedisConnection redis_;
};

TEST_F(RedisTransactionTest, a_lease_lives_as_long_as_its_bell) {
  Person alice = holder(harbour_, "GPU-1");
  EXPECT_EQ(begin()->leases()->size(), 1U);
  alice.bell.reset();
  EXPECT_EQ(begin()->leases()->size(), 0U);
}

TEST_F(RedisTransactionTest, of_two_who_saw_the_same_one_is_outrun_and_leaves_nothing) {
  Person alice = person(harbour_);
  Person bob = person(harbour_);
  Harbour other = open(folder_.path());
  // Each has read before the other writes. The lock of the host is dropped in between.
  auto sight = harbour_.part()->look(alice.record.id, harbour_.directory_id());
  const auto second = begin(other, bob.record.id);
  ASSERT_TRUE(claim(*second, bob.record, "GPU-1"));
  ASSERT_TRUE(second->commit().value_or(false));
  RedisTransaction first(*harbour_.part(), std::move(*sight),
                         std::move(*harbour_.begin_here(LockMode::exclusive, {})),
                         harbour_.directory_id());
  ASSERT_TRUE(claim(first, alice.record, "GPU-2"));
  EXPECT_TRUE(has_file(lease_name(alice.record.id)));
  const auto done = first.commit();
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_FALSE(*done);
  EXPECT_FALSE(has_file(lease_name(alice.record.id)));
  EXPECT_EQ(begin()->leases()->size(), 1U);
}

TEST_F(RedisTransactionTest, who_had_no_ticket_is_outrun_by_who_joins_the_queue) {
  Person alice = person(harbour_);
  auto sight = harbour_.part()->look(alice.record.id, harbour_.directory_id());
  Person bob = person(harbour_);
  join(bob);
  RedisTransaction first(*harbour_.part(), std::move(*sight),
                         std::move(*harbour_.begin_here(LockMode::exclusive, {})),
                         harbour_.directory_id());
  ASSERT_TRUE(claim(first, alice.record, "GPU-1"));
  EXPECT_FALSE(first.commit().value_or(true));
}

TEST_F(RedisTransactionTest, a_commit_whose_answer_was_lost_may_be_repeated) {
  Person alice = person(harbour_);
  const auto sight = harbour_.part()->look(alice.record.id, harbour_.directory_id());
  StoreChange change;
  change.id = alice.record.id;
  change.version = sight->version;
  change.epoch = sight->epoch;
  change.server_epoch = sight->server_epoch;
  alice.record.uuids = {"GPU-1"};
  alice.record.epoch = sight->epoch;
  change.lease = write_record(alice.record);
  for (int i = 0; i < 2; ++i) {
    const auto outcome = harbour_.part()->commit(change);
    ASSERT_TRUE(outcome) << outcome.error().message;
    EXPECT_TRUE(outcome->done);
  }
  EXPECT_EQ(begin()->leases()->size(), 1U);
  StoreChange ticket;
  ticket.id = "abcdefgh";
  ticket.ticket = "{}";
  const auto first = harbour_.part()->commit(ticket);
  const auto again = harbour_.part()->commit(ticket);
  EXPECT_TRUE(first->order);
  EXPECT_EQ(first->order, again->order);
}

TEST_F(RedisTransactionTest, tickets_keep_the_order_in_which_they_came_and_their_place_when_lost) {
  Person alice = person(harbour_);
  Person bob = person(harbour_);
  const TicketName first = join(alice);
  const TicketName second = join(bob);
  EXPECT_LT(first.order, second.order);
  ASSERT_TRUE(redis_.call({"FLUSHALL"}));
  std::this_thread::sleep_for(2ms);  // who has lost the counter orders by the clock, in ms
  Person carol = person(harbour_);
  join(carol);
  const auto transaction = begin(harbour_, alice.record.id);
  ASSERT_TRUE(transaction->write_ticket(alice.record, first.order));
  ASSERT_TRUE(transaction->commit().value_or(false));
  EXPECT_EQ(begin()->queue().front().id, alice.record.id);
}

TEST_F(RedisTransactionTest, a_long_queue_is_read_further_by_the_next_transaction) {
  constexpr int kLength = 800;
  RedisConnection::Words queue{"ZADD", "berth:here:queue"};
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
      const auto ticket = transaction->ticket(name);
      EXPECT_EQ(transaction->lacks_tickets(), !ticket);
      if (!ticket) return false;
    }
    return true;
  };
  int tries = 1;
  while (!reads_all()) ASSERT_LT(++tries, 6);
  EXPECT_GT(tries, 1);
  EXPECT_TRUE(reads_all());  // the range is kept
  for (int i = 0; i < 30; ++i) begin(harbour_, "cccccccc");
  EXPECT_FALSE(reads_all());  // and shrinks where it is not needed
}

TEST_F(RedisTransactionTest, a_ticket_without_a_record_is_reported) {
  ASSERT_TRUE(redis_.call({"ZADD", "berth:here:queue", "1", "aaaaaaaa"}));
  for (const char* client : {"", "cccccccc"}) {
    const auto transaction = begin(harbour_, client);
    ASSERT_EQ(transaction->queue().size(), 1U);
    const auto ticket = transaction->ticket(transaction->queue().front());
    ASSERT_TRUE(ticket);
    EXPECT_FALSE(*ticket);
    ASSERT_EQ(transaction->ignored_entries().size(), 1U);
    EXPECT_EQ(transaction->ignored_entries().front().file, "ticket aaaaaaaa");
  }
}

TEST_F(RedisTransactionTest, an_id_that_is_given_up_is_removed_by_the_commit) {
  Person alice = person(harbour_);
  const TicketName place = join(alice);
  const auto transaction = begin(harbour_, alice.record.id);
  harbour_.remove_files(alice.record.id, place);
  transaction->give_up_id(alice.record.id);
  Person renamed = person(harbour_);
  ASSERT_TRUE(claim(*transaction, renamed.record, "GPU-1"));
  transaction->tidy();
  EXPECT_EQ(redis_.call({"ZCARD", "berth:here:queue"})->integer(), 1);
  ASSERT_TRUE(transaction->commit().value_or(false));
  EXPECT_EQ(redis_.call({"ZCARD", "berth:here:queue"})->integer(), 0);
  EXPECT_EQ(redis_.call({"HLEN", "berth:here:tickets"})->integer(), 0);
  EXPECT_EQ(begin()->leases()->size(), 1U);
}

TEST_F(RedisTransactionTest, what_redis_has_lost_counts_here_and_is_put_back) {
  Person alice = holder(harbour_, "GPU-1");
  ASSERT_TRUE(redis_.call({"FLUSHALL"}));
  EXPECT_EQ(begin()->leases()->size(), 1U);
  // A young one may be on its way, and is not put back by others.
  auto transaction = begin();
  ASSERT_TRUE(transaction->leases());
  ASSERT_TRUE(transaction->commit());
  EXPECT_EQ(redis_.call({"HLEN", "berth:here:leases"})->integer(), 0);
  harbour_.remove(alice.record.id, std::nullopt);
  Person bob = person(harbour_);
  transaction = begin(harbour_, bob.record.id);
  bob.record.uuids = {"GPU-2"};
  bob.record.granted = std::chrono::system_clock::now() - 1h;
  bob.record.epoch = transaction->next_epoch();
  ASSERT_TRUE(transaction->write_lease(bob.record));
  ASSERT_TRUE(transaction->commit().value_or(false));
  ASSERT_TRUE(redis_.call({"FLUSHALL"}));
  transaction = begin();
  EXPECT_EQ(transaction->leases()->size(), 1U);
  EXPECT_TRUE(transaction->commit().value_or(false));
  EXPECT_EQ(redis_.call({"HLEN", "berth:here:leases"})->integer(), 1);
}

TEST_F(RedisTransactionTest, nothing_is_granted_until_what_is_lost_was_put_back) {
  EXPECT_GT(begin(harbour_, "cccccccc")->settles().count(), 0);  // it is new
  settle();
  EXPECT_EQ(begin(harbour_, "cccccccc")->settles().count(), 0);
  Person alice = person(harbour_);
  const auto transaction = begin(harbour_, alice.record.id);
  ASSERT_TRUE(redis_.call({"FLUSHALL"}));
  ASSERT_TRUE(claim(*transaction, alice.record, "GPU-1"));
  EXPECT_FALSE(transaction->commit().value_or(true));  // who looked before the loss is outrun
  EXPECT_GT(begin(harbour_, "cccccccc")->settles().count(), 0);
  ASSERT_TRUE(redis_.call({"SET", "berth:born", "anotherrun 1"}));
  EXPECT_GT(begin(harbour_, "cccccccc")->settles().count(), 0);  // it was restarted
}

TEST_F(RedisTransactionTest, the_silence_of_a_server_is_nobodys_death) {
  const testing::TemporaryFolder elsewhere;
  Harbour other = open(elsewhere.path());
  const Person alice = holder(other, "GPU-1");
  settle();
  ASSERT_TRUE(redis_.call({"HSET", "berth:here:beats", alice.record.id, "1000"}));
  EXPECT_EQ(begin(harbour_, "cccccccc")->settles().count(), 0);  // others were heard of
  ASSERT_TRUE(redis_.call({"SET", "berth:here:heard", "1000"}));
  EXPECT_EQ(begin(other, "cccccccc")->settles().count(), 0);  // where its bell tells
  EXPECT_GT(begin(harbour_, "cccccccc")->settles().count(), 0);
}

TEST_F(RedisTransactionTest, a_member_of_the_queue_that_is_none_of_ours_outruns_nobody) {
  for (const char* order : {"1e300", "inf", "7.5"}) {
    ASSERT_TRUE(redis_.call({"ZADD", "berth:here:queue", order, "another program's"}));
    holder(harbour_, "GPU-1");
  }
}

TEST_F(RedisTransactionTest, an_epoch_only_grows_also_over_a_loss_of_all_data) {
  const Person alice = holder(harbour_, "GPU-1");
  const Person bob = holder(harbour_, "GPU-2");
  EXPECT_LT(alice.record.epoch, bob.record.epoch);
  ASSERT_TRUE(redis_.call({"FLUSHALL"}));
  const Person carol = holder(harbour_, "GPU-3");
  EXPECT_LT(bob.record.epoch, carol.record.epoch);
}

TEST_F(RedisTransactionTest, an_epoch_is_above_those_that_are_put_back) {
  Person alice = person(harbour_);
  alice.record.uuids = {"GPU-1"};
  alice.record.epoch = 5'000'000'000'000'000;  // of a server whose clock was ahead
  StoreChange change;
  change.put_back.emplace_back(alice.record.id, write_record(alice.record));
  ASSERT_TRUE(harbour_.part()->commit(change));
  EXPECT_GT(begin()->next_epoch(), alice.record.epoch);
}

TEST_F(RedisTransactionTest, a_clock_that_was_set_back_keeps_nobody_for_long) {
  Person alice = person(harbour_);
  (void)begin(harbour_, alice.record.id);
  const auto server_epoch = redis_.call({"GET", "berth:born"})->text();
  const std::string run = server_epoch.substr(0, server_epoch.find(' '));
  ASSERT_TRUE(redis_.call({"SET", "berth:born", run + " 99999999999999"}));
  EXPECT_LT(begin(harbour_, alice.record.id)->settles(), 20s);  // not for years
  ASSERT_TRUE(redis_.call({"SET", "berth:born", run + " 1"}));
  ASSERT_TRUE(redis_.call({"SET", "berth:here:settles", "99999999999999"}));
  EXPECT_LT(begin(harbour_, alice.record.id)->settles(), 20s);  // not for years
}

TEST_F(RedisTransactionTest, who_is_heard_of_before_the_commit_is_not_dead) {
  testing::TemporaryFolder container;
  Harbour elsewhere = open(container.path());
  Person alice = holder(elsewhere, "GPU-1");
  ASSERT_TRUE(redis_.call({"HSET", "berth:here:beats", alice.record.id, "1"}));
  Person bob = person(harbour_);
  const auto transaction = begin(harbour_, bob.record.id);
  ASSERT_EQ(transaction->leases()->size(), 0U);
  ASSERT_TRUE(claim(*transaction, bob.record, "GPU-1"));
  transaction->tidy();
  ASSERT_TRUE(redis_.call({"HSET", "berth:here:beats", alice.record.id, "99999999999999"}));
  EXPECT_FALSE(transaction->commit().value_or(true));
  EXPECT_EQ(begin()->leases()->size(), 1U);
}

TEST_F(RedisTransactionTest, a_server_that_took_over_grants_nothing_on_an_old_sight) {
  Person alice = person(harbour_);
  auto sight = harbour_.part()->look(alice.record.id, harbour_.directory_id());
  // What a replica has of the master that it was a copy of.
  sight->server_epoch = "another 1";
  ASSERT_TRUE(redis_.call({"SET", "berth:born", sight->server_epoch}));
  RedisTransaction transaction(*harbour_.part(), std::move(*sight),
                               std::move(*harbour_.begin_here(LockMode::exclusive, {})),
                               harbour_.directory_id());
  ASSERT_TRUE(claim(transaction, alice.record, "GPU-1"));
  EXPECT_FALSE(transaction.commit().value_or(true));
  EXPECT_EQ(redis_.call({"HLEN", "berth:here:leases"})->integer(), 0);
  EXPECT_FALSE(has_file(lease_name(alice.record.id)));
}

TEST_F(RedisTransactionTest, who_has_left_is_not_remembered) {
  Person alice = person(harbour_);
  StoreChange change;
  change.rings = {alice.record.id};
  change.beats = {alice.record.id};
  ASSERT_TRUE(harbour_.part()->commit(change));
  EXPECT_EQ(redis_.call({"HLEN", "berth:here:rung"})->integer(), 0);
  EXPECT_EQ(redis_.call({"HLEN", "berth:here:beats"})->integer(), 0);
}

TEST_F(RedisTransactionTest, of_another_directory_the_beat_decides) {
  const testing::TemporaryFolder elsewhere;
  Harbour other = open(elsewhere.path());
  Person alice = holder(other, "GPU-1");
  alice.bell.reset();  // which nobody can see from here
  auto leases = begin()->leases();
  ASSERT_EQ(leases->size(), 1U);
  EXPECT_FALSE(leases->front().bell);
  EXPECT_TRUE(leases->front().left);
  ASSERT_TRUE(redis_.call({"HSET", "berth:here:beats", alice.record.id, "1000"}));
  const auto transaction = begin();
  EXPECT_EQ(transaction->leases()->size(), 0U);
  transaction->tidy();
  ASSERT_TRUE(transaction->commit().value_or(false));
  ASSERT_EQ(transaction->cleared().size(), 1U);
  EXPECT_EQ(transaction->cleared().front().id, alice.record.id);
}

TEST_F(RedisTransactionTest, a_lease_of_who_does_not_use_redis_counts_too) {
  HarbourLocation where{folder_.path(), true};
  auto plain = Harbour::open(where);
  Person alice = person(*plain);
  alice.record.uuids = {"GPU-1"};
  ASSERT_TRUE((*plain->begin(LockMode::exclusive, {}))->write_lease(alice.record));
  EXPECT_EQ(begin()->leases()->size(), 1U);
  const Person bob = holder(harbour_, "GPU-2");
  EXPECT_EQ((*plain->begin(LockMode::exclusive, {}))->leases()->size(), 2U);
}

TEST_F(RedisTransactionTest, who_was_told_to_end_is_granted_nothing) {
  Person alice = person(harbour_);
  const TicketName place = join(alice);
  auto sight = harbour_.part()->look(alice.record.id, harbour_.directory_id());
  const auto ending = begin();
  ASSERT_TRUE(ending->end_ticket(place));
  ASSERT_TRUE(ending->commit().value_or(false));
  EXPECT_TRUE(begin(harbour_, alice.record.id)->is_ended(alice.record.id, place));
  EXPECT_TRUE(begin()->queue().empty());
  RedisTransaction late(*harbour_.part(), std::move(*sight),
                        std::move(*harbour_.begin_here(LockMode::exclusive, {})),
                        harbour_.directory_id());
  ASSERT_TRUE(claim(late, alice.record, "GPU-1"));
  EXPECT_FALSE(late.commit().value_or(true));
}

TEST_F(RedisTransactionTest, a_key_in_redis_ends_no_lease) {
  const Person alice = holder(harbour_, "GPU-1");
  ASSERT_TRUE(redis_.call({"SET", "berth:ended:" + alice.record.id, "1"}));
  ASSERT_TRUE(harbour_.part()->send_beat(alice.record.id));
  std::optional<Result<Beat>> news;
  while (!(news = harbour_.part()->poll_heartbeat())) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(news->value(), Beat::heard);
  EXPECT_FALSE(begin(harbour_, alice.record.id)->is_ended(alice.record.id, std::nullopt));
  StoreChange change;
  change.ended = {alice.record.id};
  ASSERT_TRUE(harbour_.part()->commit(change));
  EXPECT_EQ(redis_.call({"HLEN", "berth:here:leases"})->integer(), 1);
}

TEST_F(RedisTransactionTest, a_lease_is_ended_by_its_file_alone) {
  const testing::TemporaryFolder container;
  Harbour elsewhere = open(container.path());
  const Person alice = holder(elsewhere, "GPU-1");
  for (Harbour* harbour : {&harbour_, &elsewhere}) {
    const auto transaction = begin(*harbour);
    const auto lease = transaction->lease(alice.record.id);
    ASSERT_TRUE(lease && *lease);
    const bool here = harbour == &elsewhere;
    EXPECT_EQ(transaction->end_lease(**lease).has_value(), here);
    EXPECT_TRUE(transaction->commit());
    EXPECT_EQ(begin()->leases()->size(), here ? 0U : 1U);
  }
  EXPECT_TRUE(elsewhere.is_ended(alice.record.id));
}

TEST_F(RedisTransactionTest, what_has_a_file_here_is_only_part_of_what_has_one) {
  Person alice = holder(harbour_, "GPU-1");
  Person inner = person(harbour_);
  inner.record.within = alice.record.id;
  auto transaction = begin(harbour_, inner.record.id);
  ASSERT_TRUE(claim(*transaction, inner.record, "GPU-1"));
  ASSERT_TRUE(transaction->commit().value_or(false));
  const auto within = [&] {
    const auto leases = begin()->leases();
    for (const Client& lease : *leases) {
      if (lease.record.id == inner.record.id) return lease.record.within;
    }
    return std::string("it does not count");
  };
  EXPECT_EQ(within(), alice.record.id);
  harbour_.remove(alice.record.id, std::nullopt);
  // A forged one of that name, whether it says that its bell is here or not.
  for (const char* directory_id : {"elsewhere", ""}) {
    alice.record.directory_id = *directory_id == '\0' ? harbour_.directory_id() : directory_id;
    const std::string text = write_record(alice.record);
    ASSERT_TRUE(redis_.call({"HSET", "berth:here:leases", alice.record.id, text}));
    ASSERT_TRUE(redis_.call({"HSET", "berth:here:beats", alice.record.id, "99999999999999"}));
    EXPECT_EQ(within(), "");
  }
}

TEST_F(RedisTransactionTest, the_owner_is_the_bells_and_not_what_redis_says) {
  Person alice = person(harbour_);
  const TicketName place = join(alice);
  alice.record.uid = 4711;
  const std::string text = write_record(alice.record);
  ASSERT_TRUE(redis_.call({"HSET", "berth:here:tickets", alice.record.id, text}));
  const auto transaction = begin();
  const auto ticket = transaction->ticket(place);
  ASSERT_TRUE(ticket && *ticket);
  EXPECT_EQ((*ticket)->record.uid, ::geteuid());
}

TEST_F(RedisTransactionTest, a_release_rings_the_first_who_can_hear_it) {
  Person alice = holder(harbour_, "GPU-1");
  Person bob = person(harbour_);
  Person carol = person(harbour_);
  join(bob);
  join(carol);
  harbour_.remove(alice.record.id, std::nullopt);
  EXPECT_EQ(redis_.call({"LLEN", "berth:ring:" + bob.record.id})->integer(), 1);
  EXPECT_EQ(redis_.call({"LLEN", "berth:ring:" + carol.record.id})->integer(), 0);
  harbour_.remove(bob.record.id, TicketName{1, bob.record.id});
  EXPECT_EQ(redis_.call({"LLEN", "berth:ring:" + carol.record.id})->integer(), 1);
}

TEST_F(RedisTransactionTest, what_makes_no_sense_is_ignored_and_told) {
  const std::string huge(10 << 20, 'x');
  for (const std::string& value : {std::string("{}"), std::string("\xff\xfe"), huge}) {
    ASSERT_TRUE(redis_.call({"HSET", "berth:here:leases", "aaaaaaaa", value}));
    ASSERT_TRUE(redis_.call({"HSET", "berth:here:leases", "not an id", value}));
    ASSERT_TRUE(redis_.call({"HSET", "berth:here:tickets", "bbbbbbbb", value}));
    ASSERT_TRUE(redis_.call({"ZADD", "berth:here:queue", "7", "bbbbbbbb"}));
    for (const char* client : {"", "cccccccc"}) {
      const auto transaction = begin(harbour_, client);
      EXPECT_EQ(transaction->leases()->size(), 0U);
      EXPECT_FALSE(*transaction->ticket({7, "bbbbbbbb"}));
      EXPECT_GE(transaction->ignored_entries().size(), 2U);
    }
  }
}

TEST_F(RedisTransactionTest, a_drain_that_cannot_be_read_is_a_drain) {
  ASSERT_TRUE(redis_.call({"HSET", "berth:here:drains", "GPU-1", "?"}));
  const auto drains = begin()->drains();
  ASSERT_EQ(drains->size(), 1U);
  EXPECT_EQ(drains->front().uuid, "GPU-1");
}

TEST_F(RedisTransactionTest, another_programs_keys_are_an_error_and_no_free_gpu) {
  ASSERT_TRUE(redis_.call({"SET", "berth:here:leases", "mine"}));
  for (const char* client : {"", "cccccccc"}) {
    const auto transaction = harbour_.begin(LockMode::exclusive, {}, client);
    ASSERT_FALSE(transaction);
    EXPECT_EQ(transaction.error().kind, ErrorKind::io);
  }
}

TEST_F(RedisTransactionTest, a_server_that_is_gone_is_away_and_nothing_is_written) {
  Person alice = person(harbour_);
  auto transaction = begin(harbour_, alice.record.id);
  ASSERT_TRUE(claim(*transaction, alice.record, "GPU-1"));
  server_.kill();
  const auto done = transaction->commit();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().kind, ErrorKind::unavailable);
  EXPECT_FALSE(has_file(lease_name(alice.record.id)));
}

}  // namespace
}  // namespace berth
