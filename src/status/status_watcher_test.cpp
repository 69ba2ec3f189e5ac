// The lookout on a simulated server: what wakes it, what does not, and what it survives.
#include "status/status_watcher.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/timerfd.h>

#include "devices/driver.h"
#include "harbour/harbour.h"

namespace berth {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kNever = 24h;

class LookoutTest : public testing::Test {
 protected:
  LookoutTest() {
    std::string name = "/tmp/berth-lookout-test.XXXXXX";
    folder_ = ::mkdtemp(name.data());
    make_harbour();
    ::setenv("BERTH_SIM_STATE", (folder_ / "state").c_str(), 1);
    simulate(R"({"gpus": [{"name": "A", "memory": "24GiB", "count": 2}]})");
    ::setenv("BERTH_SIM", (folder_ / "server.json").c_str(), 1);
    // The helper is the berth program: a test has threads, and lies elsewhere.
    set_helper_program(BERTH_TEST_BIN_DIR "/berth");
  }
  ~LookoutTest() override { fs::remove_all(folder_); }

  fs::path harbour() const { return folder_ / "harbour"; }
  HarbourLocation location() const { return {harbour().string(), true}; }
  void make_harbour() const {
    fs::create_directory(harbour());
    fs::permissions(harbour(), static_cast<fs::perms>(01777));
  }
  void simulate(const std::string& server) const {
    std::ofstream(folder_ / "server.json") << server;
  }
  void touch(const char* name) const { std::ofstream(harbour() / name) << ""; }

  fs::path folder_;
};

// Readable after that time: what wait() returns for if nothing else wakes it.
UniqueFd timer(std::chrono::milliseconds time) {
  UniqueFd fd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  itimerspec when{};
  when.it_value.tv_sec = time.count() / 1000;
  when.it_value.tv_nsec = time.count() % 1000 * 1'000'000;
  ::timerfd_settime(fd.get(), 0, &when, nullptr);
  return fd;
}

TEST_F(LookoutTest, sees_this_host) {
  StatusWatcher lookout(location());
  const auto hosts = lookout.look();
  ASSERT_TRUE(hosts) << hosts.error().message;
  ASSERT_EQ(hosts->size(), 1U);
  EXPECT_EQ(hosts->front().gpus.size(), 2U);
  EXPECT_TRUE(hosts->front().simulated);
}

TEST_F(LookoutTest, hears_what_comes_and_goes) {
  StatusWatcher lookout(location());
  ASSERT_TRUE(lookout.look());
  touch("one");
  EXPECT_TRUE(lookout.wait(kNever));
  ASSERT_TRUE(lookout.look());
  fs::rename(harbour() / "one", harbour() / "two");
  EXPECT_TRUE(lookout.wait(kNever));
  ASSERT_TRUE(lookout.look());
  fs::remove(harbour() / "two");
  EXPECT_TRUE(lookout.wait(kNever));
}

TEST_F(LookoutTest, does_not_hear_itself) {
  StatusWatcher lookout(location());
  auto harbour = Harbour::open(location());
  ASSERT_TRUE(harbour);
  const auto bell = harbour->make_bell();  // a client, whose bell it looks at
  ASSERT_TRUE(bell);
  Record record;
  record.id = bell->id;
  record.uid = ::geteuid();
  record.pid = ::getpid();
  record.uuids = {"GPU-1"};
  ASSERT_TRUE((*harbour->begin_here(LockMode::exclusive, {}))->write_lease(record));
  for (int i = 0; i < 2; ++i) {  // the first look may hear of what was made before it
    const auto hosts = lookout.look();
    ASSERT_TRUE(hosts);
    EXPECT_EQ(hosts->front().leases.size(), 1U);
  }
  const UniqueFd over = timer(600ms);
  std::array<pollfd, 1> others{{{over.get(), POLLIN, 0}}};
  EXPECT_FALSE(lookout.wait(kNever, others));
}

TEST_F(LookoutTest, who_does_not_listen_is_not_woken) {
  StatusWatcher lookout(location());
  ASSERT_TRUE(lookout.look());
  touch("one");
  const UniqueFd over = timer(600ms);
  std::array<pollfd, 1> others{{{over.get(), POLLIN, 0}}};
  EXPECT_FALSE(lookout.wait(kNever, others, false));
}

TEST_F(LookoutTest, keeps_its_pace_whatever_goes_on) {
  StatusWatcher lookout(location());
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(lookout.look());
  touch("one");
  ASSERT_TRUE(lookout.wait(kNever));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 250ms);
}

TEST_F(LookoutTest, looks_again_after_the_period) {
  StatusWatcher lookout(location());
  ASSERT_TRUE(lookout.look());
  EXPECT_TRUE(lookout.wait(100ms));
}

TEST_F(LookoutTest, another_descriptor_ends_the_waiting) {
  StatusWatcher lookout(location());
  ASSERT_TRUE(lookout.look());
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const UniqueFd reads(ends[0]);
  const UniqueFd writes(ends[1]);
  const UniqueFd silent = timer(kNever);
  ASSERT_EQ(::write(writes.get(), "x", 1), 1);
  std::array<pollfd, 2> others{{{silent.get(), POLLIN, 0}, {reads.get(), POLLIN, 0}}};
  EXPECT_FALSE(lookout.wait(kNever, others));
  EXPECT_EQ(others[0].revents, 0);
  EXPECT_EQ(others[1].revents, POLLIN);
}

TEST_F(LookoutTest, hears_a_harbour_that_is_made_anew) {
  StatusWatcher lookout(location());
  ASSERT_TRUE(lookout.look());
  fs::remove_all(harbour());
  EXPECT_TRUE(lookout.wait(kNever));
  ASSERT_TRUE(lookout.look());  // there is none: nobody has a lease
  make_harbour();
  ASSERT_TRUE(lookout.look());
  touch("one");
  EXPECT_TRUE(lookout.wait(kNever));
}

TEST_F(LookoutTest, a_driver_that_fails_can_come_back) {
  simulate(R"({"gpus": [{"name": "A", "memory": "24GiB"}],
               "faults": [{"call": "nvmlInit", "answer": "unknown"}]})");
  StatusWatcher lookout(location());
  const auto failed = lookout.look();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind, ErrorKind::no_driver);
  simulate(R"({"gpus": [{"name": "A", "memory": "24GiB"}]})");
  const auto healed = lookout.look();
  ASSERT_TRUE(healed) << healed.error().message;
  EXPECT_EQ(healed->front().gpus.size(), 1U);
}

TEST_F(LookoutTest, a_driver_that_hangs_can_be_left) {
  simulate(R"({"gpus": [{"name": "A", "memory": "24GiB"}],
               "faults": [{"call": "nvmlInit", "hang": true}]})");
  ::setenv("BERTH_DRIVER_TIMEOUT", "1h", 1);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const UniqueFd leave(ends[0]);
  const UniqueFd leaves(ends[1]);
  int slow = 0;
  StatusWatcher lookout(location(), [&] {  // who is told that it takes long, leaves
    ++slow;
    EXPECT_EQ(::write(leaves.get(), "x", 1), 1);
  });
  lookout.interrupt_by(leave.get());
  const auto left = lookout.look();
  ::unsetenv("BERTH_DRIVER_TIMEOUT");
  ASSERT_FALSE(left);
  EXPECT_EQ(left.error().kind, ErrorKind::no_driver);
  EXPECT_EQ(slow, 1);
}

}  // namespace
}  // namespace berth
