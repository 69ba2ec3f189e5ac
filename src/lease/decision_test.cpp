// Unit tests of decision.h: what a decision does with a snapshot that became old while the client
// waited for the harbour's lock.
#include "lease/decision.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string>
#include <unistd.h>
#include <utility>

namespace berth {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kUuid = "GPU-0";

class DecisionTest : public testing::Test {
 protected:
  DecisionTest() {
    std::string name = "/tmp/berth-decision-test.XXXXXX";
    path_ = ::mkdtemp(name.data());
    fs::permissions(path_, static_cast<fs::perms>(01777));
    auto harbour = Harbour::open({path_.string(), true});
    if (harbour) harbour_.emplace(std::move(*harbour));
  }
  ~DecisionTest() override { fs::remove_all(path_); }

  PendingClient make_client() {
    auto bell = harbour_->make_bell();
    PendingClient client;
    client.record.id = bell->id;
    client.record.uid = ::geteuid();
    client.record.pid = ::getpid();
    client.record.since = std::chrono::system_clock::now();
    client.bell = std::move(bell->fd);
    return client;
  }

  // One GPU, free or with a stranger.
  static TimedSnapshot make_snapshot(Clock::duration age, bool has_stranger = false) {
    Gpu gpu;
    gpu.uuid = kUuid;
    gpu.memory_total = gib(24);
    gpu.memory_used = Bytes{};
    gpu.utilization_pct = 0;
    if (has_stranger) gpu.processes.emplace_back().pid = 1;
    return {{"1.0", {gpu}}, Clock::now() - age};
  }

  Decision decide_with(PendingClient& client, const TimedSnapshot& snapshot) {
    auto decision = decide(*harbour_, client, snapshot, {}, {});
    EXPECT_TRUE(decision) << decision.error().message;
    return std::move(*decision);
  }

  std::size_t count_tickets() {
    auto transaction = harbour_->begin(LockMode::shared, {});
    return (*transaction)->queue().size();
  }

  fs::path path_;
  std::optional<Harbour> harbour_;
};

TEST_F(DecisionTest, an_old_snapshot_gives_a_ticket_but_no_lease) {
  PendingClient client = make_client();
  const Decision old = decide_with(client, make_snapshot(3s));
  EXPECT_TRUE(old.stale);
  EXPECT_FALSE(old.granted);
  EXPECT_TRUE(client.ticket);
  EXPECT_EQ(count_tickets(), 1);
  const Decision decision = decide_with(client, make_snapshot(0s));
  EXPECT_TRUE(decision.granted);
  EXPECT_EQ(count_tickets(), 0);
}

TEST_F(DecisionTest, a_client_that_has_to_wait_anyway_needs_no_new_snapshot) {
  PendingClient holder = make_client();
  EXPECT_TRUE(decide_with(holder, make_snapshot(0s)).granted);
  PendingClient client = make_client();
  const Decision decision = decide_with(client, make_snapshot(3s));
  EXPECT_FALSE(decision.stale);
  EXPECT_EQ(decision.queue_position, 1);
  ASSERT_EQ(decision.wait.blockers.size(), 1);
  EXPECT_EQ(decision.wait.blockers.front().reason, BlockReason::leased);
  EXPECT_TRUE(decision.watches_all_leases);
  EXPECT_EQ(count_tickets(), 1);
}

TEST_F(DecisionTest, a_client_that_must_not_wait_is_refused_by_leases_alone) {
  PendingClient client = make_client();
  client.may_wait = false;
  EXPECT_TRUE(decide_with(client, make_snapshot(3s)).stale) << "it may be granted the GPU";
  EXPECT_TRUE(decide_with(client, make_snapshot(3s, true)).stale) << "the stranger may be gone";
  EXPECT_FALSE(decide_with(client, make_snapshot(0s, true)).stale);
  PendingClient holder = make_client();
  EXPECT_TRUE(decide_with(holder, make_snapshot(0s)).granted);
  const Decision decision = decide_with(client, make_snapshot(3s));
  EXPECT_FALSE(decision.stale);
  EXPECT_EQ(decision.wait.blockers.size(), 1);
  EXPECT_EQ(count_tickets(), 0);
}

TEST_F(DecisionTest, a_ring_counts_until_a_decision_uses_it) {
  PendingClient client = make_client();
  client.was_rung = true;
  EXPECT_TRUE(decide_with(client, make_snapshot(3s)).stale);
  EXPECT_TRUE(client.was_rung);
}

}  // namespace
}  // namespace berth
