// Tests of guarded_probe.h with a working driver, and with drivers that hang, crash or are missing.
#include "devices/guarded_probe.h"

#include <array>
#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace berth {
namespace {

using namespace std::chrono_literals;

const std::string kSim = BERTH_TEST_SIM_DIR "/libnvidia-ml.so.1";

// Gives each test its own simulated server.
class GuardedProbeTest : public testing::Test {
 protected:
  GuardedProbeTest() {
    std::string pattern = testing::TempDir() + "berth-probe-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    ::setenv("BERTH_SIM_STATE", (folder_ + "/state").c_str(), 1);
  }
  ~GuardedProbeTest() override {
    for (const char* name : {"/state", "/server.json"}) ::unlink((folder_ + name).c_str());
    ::rmdir(folder_.c_str());
  }
  void simulate(const std::string& server) {
    if (server.starts_with('{')) {
      std::ofstream(folder_ + "/server.json") << server;
      ::setenv("BERTH_SIM", (folder_ + "/server.json").c_str(), 1);
    } else {
      ::setenv("BERTH_SIM", server.c_str(), 1);
    }
  }
  std::string folder_;
};

GuardedProbeSettings sim_settings() {
  GuardedProbeSettings settings;
  settings.library = kSim;
  return settings;
}

TEST_F(GuardedProbeTest, tells_how_some_gpus_are_used) {
  simulate("4x24GiB");
  GuardedProbe probe(sim_settings());
  const auto snapshot = probe.snapshot();
  ASSERT_TRUE(snapshot) << snapshot.error().message;
  for (int i = 0; i < 2; ++i) {
    const auto samples =
        probe.sample({*snapshot->gpus[2].uuid, "GPU-none", *snapshot->gpus[0].uuid});
    ASSERT_TRUE(samples) << samples.error().message;
    ASSERT_EQ(samples->size(), 3U);
    EXPECT_EQ((*samples)[0].uuid, snapshot->gpus[2].uuid);
    EXPECT_EQ((*samples)[0].memory_total, gib(24));
    EXPECT_EQ((*samples)[0].utilization_pct, 0U);
    EXPECT_TRUE((*samples)[0].complete);
    EXPECT_EQ((*samples)[1].uuid, "GPU-none");
    EXPECT_FALSE((*samples)[1].complete);
    EXPECT_EQ((*samples)[1].memory_total, std::nullopt);
  }
}

TEST_F(GuardedProbeTest, sees_the_gpus_again_and_again) {
  simulate("4x24GiB");
  GuardedProbe probe(sim_settings());
  for (int i = 0; i < 3; ++i) {
    const auto snapshot = probe.snapshot();
    ASSERT_TRUE(snapshot) << snapshot.error().message;
    ASSERT_EQ(snapshot->gpus.size(), 4U);
    EXPECT_EQ(snapshot->gpus[3].memory_total, gib(24));
  }
  const auto topology = probe.topology();
  ASSERT_TRUE(topology) << topology.error().message;
  EXPECT_EQ(topology->connections.size(), 6U);
}

// If the driver does not support the memory calls, the only GPU of a host uses the host's memory.
TEST_F(GuardedProbeTest, only_a_whole_gpu_that_is_alone_has_the_hosts_memory) {
  const auto reads_host = [&](const std::string& server) {
    simulate(server);
    ::unlink((folder_ + "/state").c_str());
    GuardedProbe probe(sim_settings());
    const auto snapshot = probe.snapshot();
    std::vector<std::string> uuids;
    std::vector<bool> result;
    EXPECT_TRUE(snapshot) << snapshot.error().message;
    if (!snapshot) return result;
    for (const Gpu& gpu : snapshot->gpus) {
      uuids.push_back(*gpu.uuid);
      result.push_back(gpu.memory_is_hosts);
      EXPECT_EQ(gpu.memory_total.has_value(), gpu.memory_is_hosts);
    }
    const auto samples = probe.sample(uuids);
    EXPECT_TRUE(samples) << samples.error().message;
    for (std::size_t i = 0; i < samples->size(); ++i) {
      EXPECT_EQ((*samples)[i].memory_is_hosts, result[i]);
      EXPECT_EQ((*samples)[i].memory_total.has_value(), result[i]);
    }
    return result;
  };
  const std::string card = R"({"name": "A", "memory": "8GiB", "unified_memory": true)";
  using List = std::vector<bool>;
  EXPECT_EQ(reads_host(R"({"gpus": [)" + card + "}]}"), List{true});
  EXPECT_EQ(reads_host(R"({"gpus": [)" + card + "}, " + card + "}]}"), (List{false, false}));
  const std::string instance = R"(, "mig": [{"memory": "4GiB", "name": "1g"}])";
  EXPECT_EQ(reads_host(R"({"gpus": [)" + card + instance + "}]}"), List{false});
}

TEST_F(GuardedProbeTest, gives_up_on_a_driver_that_hangs) {
  simulate(R"({"gpus":[{"name":"A","memory":"1GiB"}],
               "faults":[{"call":"nvmlInit","hang":true}]})");
  GuardedProbeSettings settings = sim_settings();
  settings.timeout = 300ms;
  settings.slow_after = 100ms;
  int slow_count = 0;
  settings.on_slow = [&] { ++slow_count; };
  GuardedProbe probe(std::move(settings));
  for (int i = 1; i <= 2; ++i) {
    const auto snapshot = probe.snapshot();
    ASSERT_FALSE(snapshot);
    EXPECT_EQ(snapshot.error().kind, ErrorKind::no_driver);
    EXPECT_NE(snapshot.error().message.find("did not answer within 300ms"), std::string::npos)
        << snapshot.error().message;
    EXPECT_EQ(slow_count, i);
  }
}

TEST_F(GuardedProbeTest, survives_a_driver_that_crashes) {
  GuardedProbeSettings settings;
  settings.library = BERTH_TEST_CRASHING_DRIVER;
  GuardedProbe probe(std::move(settings));
  for (int i = 0; i < 2; ++i) {
    const auto snapshot = probe.snapshot();
    ASSERT_FALSE(snapshot);
    EXPECT_EQ(snapshot.error().kind, ErrorKind::no_driver);
    EXPECT_NE(snapshot.error().message.find("crashed (signal 6)"), std::string::npos)
        << snapshot.error().message;
  }
}

TEST_F(GuardedProbeTest, passes_the_users_own_mistake_on) {
  simulate("nonsense");
  const auto snapshot = GuardedProbe(sim_settings()).snapshot();
  ASSERT_FALSE(snapshot);
  EXPECT_EQ(snapshot.error().kind, ErrorKind::usage);
}

// A hung child that kept the parent's pipe open would block the reader of that pipe.
TEST_F(GuardedProbeTest, child_holds_nothing_of_the_parents) {
  simulate("1x1GiB");
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);  // close-on-exec would not matter: a fork inherits it anyway
  GuardedProbe probe(sim_settings());
  ASSERT_TRUE(probe.snapshot());
  ::close(ends[1]);
  pollfd entry{ends[0], POLLIN, 0};
  ASSERT_EQ(::poll(&entry, 1, 10'000), 1);
  EXPECT_TRUE(entry.revents & POLLHUP);
  ::close(ends[0]);
}

// Without a handle, a child that hangs could be neither killed nor reaped. The test does not run in
// the sanitizer builds, which use clang: UBSan needs free descriptors to check memory, and reports
// an error without them.
#ifndef __clang__
TEST_F(GuardedProbeTest, a_child_that_cannot_be_watched_is_an_error_and_ends) {
  simulate("1x1GiB");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<UniqueFd> filled;  // occupies all lower numbers
  while (filled.size() < 64) filled.emplace_back(::dup(STDERR_FILENO));
  const auto next = static_cast<rlim_t>(filled.back().get()) + 1;
  GuardedProbe probe(sim_settings());
  const rlimit few{next + 2, before.rlim_max};  // enough for the socket pair only
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto snapshot = probe.snapshot();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(snapshot);
  EXPECT_EQ(snapshot.error().kind, ErrorKind::no_driver);
  EXPECT_NE(snapshot.error().message.find("cannot be watched"), std::string::npos)
      << snapshot.error().message;
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "there is no child";
  EXPECT_TRUE(probe.snapshot());  // works again with free descriptors
}
#endif

TEST(SendAll, gives_up_if_the_other_end_does_not_read) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const std::string much(16 << 20, 'x');
  EXPECT_FALSE(send_all(ends[0], much, std::chrono::steady_clock::now() + 50ms));
  EXPECT_TRUE(send_all(ends[1], "little", std::chrono::steady_clock::now()));
  for (const int end : ends) ::close(end);
}

}  // namespace
}  // namespace berth
