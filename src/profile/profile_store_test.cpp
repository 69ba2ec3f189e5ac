// Unit tests of profile_store.h with a real Redis server.
#include "profile/profile_store.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

#include "base/users.h"
#include "cluster/redis/testing/redis_server.h"
#include "cluster/store/redis_profiles.h"

namespace berth {
namespace {

class ProfileStoreTest : public ::testing::Test {
 protected:
  ProfileStoreTest() : redis_(server_.connect()) {}

  HarbourLocation host(const std::string& name) const {
    HarbourLocation where = alone(name);
    where.url = server_.url();
    where.host = name;
    return where;
  }
  // The same host without a server.
  HarbourLocation alone(const std::string& name) const {
    const std::string path = temp_folder_.path() + "/" + name;
    std::filesystem::create_directories(path);
    return {path, true};
  }
  static void record_run(const HarbourLocation& where, Bytes peak) {
    const auto done = change_profile(where, "train", [&](Profile& profile) {
      add_run(profile, {TimePoint(), peak, std::chrono::milliseconds(1), false, false});
    });
    ASSERT_TRUE(done) << done.error().message;
  }
  static std::size_t runs(const HarbourLocation& where) {
    const auto profile = read_profile(where, "train");
    return profile ? profile->runs.size() : 0;
  }
  void set(const std::string& user, const std::string& type, const std::string& value) {
    ASSERT_TRUE(redis_.call({"HSET", "berth:profiles:" + user, type, value}));
    ASSERT_TRUE(redis_.call({"SADD", "berth:profiles", user}));
  }

  testing::RedisServer server_;
  testing::TemporaryFolder temp_folder_;
  RedisConnection redis_;
  const std::string me_ = user_name(::geteuid());
};

TEST_F(ProfileStoreTest, hosts_share_profiles) {
  record_run(host("a"), gib(3));
  record_run(host("b"), gib(4));
  EXPECT_EQ(runs(host("a")), 2U);
  EXPECT_EQ(runs(host("c")), 2U);
  EXPECT_EQ(runs(alone("a")), 0U);
}

TEST_F(ProfileStoreTest, concurrent_runs_are_all_recorded) {
  constexpr int kHosts = 8;
  constexpr int kEach = 6;  // 48 runs; 50 are kept
  std::vector<std::thread> threads;
  threads.reserve(kHosts);
  for (int i = 0; i < kHosts; ++i) {
    threads.emplace_back([&, i] {
      for (int run = 0; run < kEach; ++run) record_run(host(std::to_string(i)), gib(1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(runs(host("a")), std::size_t{kHosts} * kEach);
}

TEST_F(ProfileStoreTest, old_files_count_until_redis_has_the_profile) {
  record_run(alone("a"), gib(3));
  EXPECT_EQ(runs(host("a")), 1U);
  EXPECT_EQ(runs(host("b")), 0U);
  ASSERT_EQ(list_own_profiles(host("a"))->profiles.size(), 1U);
  EXPECT_EQ(list_own_profiles(host("a"))->profiles[0].user, me_);
  record_run(host("a"), gib(4));  // copies the runs of the old file to the server
  EXPECT_EQ(runs(host("b")), 2U);
  EXPECT_EQ(list_own_profiles(host("a"))->profiles.size(), 1U);
}

TEST_F(ProfileStoreTest, forgotten_profile_does_not_return_from_a_file) {
  record_run(alone("a"), gib(3));
  record_run(alone("b"), gib(3));
  EXPECT_TRUE(*forget_profile(host("a"), "train"));
  EXPECT_FALSE(*forget_profile(host("a"), "train"));
  EXPECT_EQ(runs(host("a")), 0U);
  EXPECT_EQ(runs(host("b")), 0U);
  EXPECT_TRUE(list_all_profiles(host("b"))->profiles.empty());
  EXPECT_EQ(list_all_profiles(host("b"))->damaged, 0U);
  record_run(host("b"), gib(4));
  EXPECT_EQ(runs(host("a")), 1U);
}

TEST_F(ProfileStoreTest, finds_the_profile_of_another_user) {
  EXPECT_FALSE(find_other_users_profile(host("a"), "train"));
  set("ann", "train", R"({"type":"train","runs":[{"peak":1073741824,"lasted_ms":1}]})");
  set("bob", "train",
      R"({"type":"train","set_memory":1,"set_time_ms":1,"runs":[{"peak":2,"lasted_ms":1},{"peak":3}]})");
  set("eve", "train", R"({"type":"other","runs":[{"peak":2},{"peak":3},{"peak":3}]})");
  set(me_, "train", R"({"type":"train","runs":[{"peak":2},{"peak":3},{"peak":3}]})");
  const auto best = find_other_users_profile(host("a"), "train");
  ASSERT_TRUE(best);
  EXPECT_EQ(best->user, "bob");
  EXPECT_FALSE(best->set_memory) << "what another user has set by hand says nothing";
  EXPECT_FALSE(best->set_time);
}

TEST_F(ProfileStoreTest, skips_damaged_profiles_and_replaces_them) {
  set(me_, "huge", std::string(std::size_t{10} << 20, 'x'));
  set(me_, "broken", "{\"type\":");
  set(me_, "train", "[]");
  set(std::string(std::size_t{10} << 20, 'u'), "train", "{}");
  const auto list = list_all_profiles(host("a"));
  ASSERT_TRUE(list);
  EXPECT_TRUE(list->profiles.empty());
  EXPECT_EQ(list->damaged, 3U);
  EXPECT_EQ(runs(host("a")), 0U);
  record_run(host("a"), gib(1));
  EXPECT_EQ(runs(host("a")), 1U);
  EXPECT_TRUE(change_profile(host("a"), "huge", [](Profile&) {}));
  EXPECT_EQ(list_all_profiles(host("a"))->damaged, 1U);
}

TEST_F(ProfileStoreTest, stale_mark_is_rejected) {
  RedisProfiles profiles(server_.url());
  Profile profile;
  profile.type = "train";
  EXPECT_TRUE(*profiles.replace("eve", profile, ""));
  EXPECT_FALSE(*profiles.replace("eve", profile, ""));  // refused although it is equal
  profile.failures = 1;
  EXPECT_FALSE(*profiles.replace("eve", profile, ""));
  EXPECT_EQ(profiles.read("eve", "train")->profile->failures, 0U);
}

TEST_F(ProfileStoreTest, without_a_server_reads_files_and_rejects_changes) {
  record_run(alone("a"), gib(3));
  const HarbourLocation where = host("a");
  server_.kill();
  EXPECT_EQ(runs(where), 1U);
  const auto changed = change_profile(where, "train", [](Profile&) {});
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().kind, ErrorKind::unavailable);
  EXPECT_FALSE(list_own_profiles(where));
  EXPECT_EQ(runs(alone("a")), 1U);
}

}  // namespace
}  // namespace berth
