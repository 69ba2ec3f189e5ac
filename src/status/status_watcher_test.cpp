// Tests of the status watcher on a simulated server: what wakes it, and errors that it survives.
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

constexpr auto kForever = 24h;

class StatusWatcherTest : public testing::Test {
 protected:
  StatusWatcherTest() {
    std::string name = "/tmp/berth-lookout-test.XXXXXX";
    folder_ = ::mkdtemp(name.data());
    make_harbour();
    ::setenv("BERTH_SIM_STATE", (folder_ / "state").c_str(), 1);
    simulate(R"({"gpus": [{"name": "A", "memory": "24GiB", "count": 2}]})");
    ::setenv("BERTH_SIM", (folder_ / "server.json").c_str(), 1);
    // The helper process runs the berth program: the test program has threads, and is in another
    // directory.
    set_helper_program(BERTH_TEST_BIN_DIR "/berth");
  }
  ~StatusWatcherTest() override { fs::remove_all(folder_); }

  fs::path harbour() const { return folder_ / "harbour"; }
  HarbourLocation location() const { return {harbour().string(), true}; }
  void make_harbour() const {
    fs::create_directory(harbour());
    fs::permissions(harbour(), static_cast<fs::perms>(01777));
  }
  void simulate(const std::string& server) const {
    std::ofstream(folder_ / "server.json") << server;
  }
  void create_file(const char* name) const { std::ofstream(harbour() / name) << ""; }

  fs::path folder_;
};

// A descriptor that is readable after `time`, and ends a wait() that nothing else ends.
UniqueFd timer(std::chrono::milliseconds time) {
  UniqueFd fd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  itimerspec when{};
  when.it_value.tv_sec = time.count() / 1000;
  when.it_value.tv_nsec = time.count() % 1000 * 1'000'000;
  ::timerfd_settime(fd.get(), 0, &when, nullptr);
  return fd;
}

TEST_F(StatusWatcherTest, sees_this_host) {
  StatusWatcher watcher(location());
  const auto hosts = watcher.observe();
  ASSERT_TRUE(hosts) << hosts.error().message;
  ASSERT_EQ(hosts->size(), 1U);
  EXPECT_EQ(hosts->front().gpus.size(), 2U);
  EXPECT_TRUE(hosts->front().simulated);
}

TEST_F(StatusWatcherTest, wakes_when_files_come_and_go) {
  StatusWatcher watcher(location());
  ASSERT_TRUE(watcher.observe());
  create_file("one");
  EXPECT_TRUE(watcher.wait(kForever));
  ASSERT_TRUE(watcher.observe());
  fs::rename(harbour() / "one", harbour() / "two");
  EXPECT_TRUE(watcher.wait(kForever));
  ASSERT_TRUE(watcher.observe());
  fs::remove(harbour() / "two");
  EXPECT_TRUE(watcher.wait(kForever));
}

TEST_F(StatusWatcherTest, does_not_wake_itself) {
  StatusWatcher watcher(location());
  auto harbour = Harbour::open(location());
  ASSERT_TRUE(harbour);
  const auto bell = harbour->make_bell();  // of a client, so that observe() opens a bell
  ASSERT_TRUE(bell);
  Record record;
  record.id = bell->id;
  record.uid = ::geteuid();
  record.pid = ::getpid();
  record.uuids = {"GPU-1"};
  ASSERT_TRUE((*harbour->begin_directory(LockMode::exclusive, {}))->write_lease(record));
  for (int i = 0; i < 2; ++i) {  // the first observe() may leave events of the files made above
    const auto hosts = watcher.observe();
    ASSERT_TRUE(hosts);
    EXPECT_EQ(hosts->front().leases.size(), 1U);
  }
  const UniqueFd deadline = timer(600ms);
  std::array<pollfd, 1> descriptors{{{deadline.get(), POLLIN, 0}}};
  EXPECT_FALSE(watcher.wait(kForever, descriptors));
}

TEST_F(StatusWatcherTest, ignores_the_harbour_if_told_to) {
  StatusWatcher watcher(location());
  ASSERT_TRUE(watcher.observe());
  create_file("one");
  const UniqueFd deadline = timer(600ms);
  std::array<pollfd, 1> descriptors{{{deadline.get(), POLLIN, 0}}};
  EXPECT_FALSE(watcher.wait(kForever, descriptors, false));
}

TEST_F(StatusWatcherTest, limits_its_rate) {
  StatusWatcher watcher(location());
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(watcher.observe());
  create_file("one");
  ASSERT_TRUE(watcher.wait(kForever));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 250ms);
}

TEST_F(StatusWatcherTest, wakes_after_the_period) {
  StatusWatcher watcher(location());
  ASSERT_TRUE(watcher.observe());
  EXPECT_TRUE(watcher.wait(100ms));
}

TEST_F(StatusWatcherTest, another_descriptor_ends_the_wait) {
  StatusWatcher watcher(location());
  ASSERT_TRUE(watcher.observe());
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  const UniqueFd quiet_timer = timer(kForever);
  ASSERT_EQ(::write(writer.get(), "x", 1), 1);
  std::array<pollfd, 2> descriptors{{{quiet_timer.get(), POLLIN, 0}, {reader.get(), POLLIN, 0}}};
  EXPECT_FALSE(watcher.wait(kForever, descriptors));
  EXPECT_EQ(descriptors[0].revents, 0);
  EXPECT_EQ(descriptors[1].revents, POLLIN);
}

TEST_F(StatusWatcherTest, watches_a_harbour_that_is_created_again) {
  StatusWatcher watcher(location());
  ASSERT_TRUE(watcher.observe());
  fs::remove_all(harbour());
  EXPECT_TRUE(watcher.wait(kForever));
  ASSERT_TRUE(watcher.observe());  // without a harbour there are no leases
  make_harbour();
  ASSERT_TRUE(watcher.observe());
  create_file("one");
  EXPECT_TRUE(watcher.wait(kForever));
}

TEST_F(StatusWatcherTest, recovers_when_the_driver_does) {
  simulate(R"({"gpus": [{"name": "A", "memory": "24GiB"}],
               "faults": [{"call": "nvmlInit", "answer": "unknown"}]})");
  StatusWatcher watcher(location());
  const auto failed = watcher.observe();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind, ErrorKind::no_driver);
  simulate(R"({"gpus": [{"name": "A", "memory": "24GiB"}]})");
  const auto recovered = watcher.observe();
  ASSERT_TRUE(recovered) << recovered.error().message;
  EXPECT_EQ(recovered->front().gpus.size(), 1U);
}

TEST_F(StatusWatcherTest, a_driver_that_hangs_can_be_interrupted) {
  simulate(R"({"gpus": [{"name": "A", "memory": "24GiB"}],
               "faults": [{"call": "nvmlInit", "hang": true}]})");
  ::setenv("BERTH_DRIVER_TIMEOUT", "1h", 1);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const UniqueFd interrupt_reader(ends[0]);
  const UniqueFd interrupt_writer(ends[1]);
  int slow = 0;
  StatusWatcher watcher(location(), [&] {  // interrupts once the driver takes long
    ++slow;
    EXPECT_EQ(::write(interrupt_writer.get(), "x", 1), 1);
  });
  watcher.set_interrupt(interrupt_reader.get());
  const auto interrupted = watcher.observe();
  ::unsetenv("BERTH_DRIVER_TIMEOUT");
  ASSERT_FALSE(interrupted);
  EXPECT_EQ(interrupted.error().kind, ErrorKind::no_driver);
  EXPECT_EQ(slow, 1);
}

}  // namespace
}  // namespace berth
