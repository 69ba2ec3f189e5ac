// Tests that a record whose name is taken gets another id, and that Redis is not asked under the
// lock.
#include "lease/own_record.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

#include "cluster/redis/testing/redis_server.h"
#include "harbour/file_names.h"

namespace berth {
namespace {

namespace fs = std::filesystem;

TEST(OwnRecord, redis_is_not_asked_before_the_commit) {
  const testing::RedisServer server;
  const testing::TemporaryFolder folder;
  fs::permissions(folder.path(), static_cast<fs::perms>(01777));
  HarbourLocation where{folder.path(), true};
  where.url = server.url();
  where.host = "here";
  auto harbour = Harbour::open(where);
  ASSERT_TRUE(harbour);
  RedisConnection redis = server.connect();
  auto bell = harbour->make_bell();
  ASSERT_TRUE(bell);
  Record record;
  record.id = bell->id;
  record.uid = ::geteuid();
  record.pid = ::getpid();
  record.directory_id = harbour->directory_id();
  std::optional<TicketName> ticket;
  {
    auto enqueue = harbour->begin(LockMode::exclusive, {}, record.id);
    ASSERT_TRUE(enqueue);
    const auto order = (*enqueue)->next_file_number();
    ASSERT_TRUE((*enqueue)->write_ticket(record, *order));
    ASSERT_TRUE((*enqueue)->commit().value_or(false));
    ticket = (*enqueue)->current_ticket_name({*order, record.id});
  }
  const std::string foreign_file = folder.path() + "/" + lease_file_name(record.id);
  std::ofstream(foreign_file) << "planted";

  auto transaction = harbour->begin(LockMode::exclusive, {}, record.id);
  ASSERT_TRUE(transaction);
  record.uuids = {"GPU-1"};
  record.epoch = (*transaction)->next_epoch();
  const auto tickets = [&] { return redis.call({"ZCARD", "berth:here:queue"})->integer(); };
  auto written = write_own_record(*harbour, **transaction, record, bell->fd, ticket,
                                  [&] { return (*transaction)->write_lease(record); });
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_NE(record.id, bell->id);
  EXPECT_FALSE(ticket);
  EXPECT_EQ(tickets(), 1);
  EXPECT_TRUE((*transaction)->commit().value_or(false));
  EXPECT_EQ(tickets(), 0);
  EXPECT_EQ(redis.call({"HEXISTS", "berth:here:leases", record.id})->integer(), 1);
}

}  // namespace
}  // namespace berth
