// Tests of process_table.h: identities, leases in environments, and processes that block a reader.
#include "devices/process_table.h"

#include <array>
#include <atomic>
#include <csignal>
#include <fcntl.h>
#include <future>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"

namespace berth {
namespace {

using namespace std::chrono_literals;

Gpu gpu_with(const std::vector<std::int64_t>& pids) {
  Gpu gpu;
  for (const std::int64_t pid : pids) {
    GpuProcess process;
    process.pid = pid;
    process.lineage = {{pid, 0, "x"}};
    gpu.processes.push_back(process);
  }
  return gpu;
}

TEST(ProcessTable, knows_a_process_and_its_ancestors) {
  GpuProcess me;
  me.pid = ::getpid();
  ASSERT_EQ(ProcessTable().identify(me), is_in_host_pid_namespace());
  if (!is_in_host_pid_namespace()) return;  // our number is not the host's
  EXPECT_EQ(me.uid, ::getuid());
  ASSERT_GE(me.lineage.size(), 2U);
  EXPECT_LE(me.lineage.size(), 64U);
  EXPECT_EQ(me.lineage[0].pid, ::getpid());
  EXPECT_EQ(me.lineage[0].uid, ::geteuid());
  EXPECT_EQ(me.lineage[0].name, me.name);
  EXPECT_EQ(me.lineage[0].is_root, ::getuid() == 0 && ::geteuid() == 0);
  EXPECT_EQ(me.lineage[1].pid, ::getppid());
}

TEST(ProcessTable, says_nothing_of_a_process_that_is_gone) {
  GpuProcess gone;
  gone.pid = 5'000'001;  // above the largest PID of Linux
  EXPECT_FALSE(ProcessTable().identify(gone));
  EXPECT_EQ(gone.uid, std::nullopt);
  EXPECT_TRUE(gone.lineage.empty());
}

TEST(ProcessMemoryReader, finds_the_lease_in_an_environment) {
  std::vector<Gpu> gpus{gpu_with({::getpid(), 5'000'001})};
  // /proc shows the environment with which a program was started, in a fork, too.
  ProcessMemoryReader().read_into(gpus);
  ASSERT_TRUE(gpus[0].processes[0].lease);
  const char* set = ::getenv("BERTH_LEASE");
  EXPECT_EQ(gpus[0].processes[0].lease, set == nullptr ? "" : set);
  EXPECT_EQ(gpus[0].processes[1].lease, std::nullopt);
}

// The lease that is found in a program with this environment.
std::optional<std::string> read_lease_with_environment(std::vector<std::string> environment) {
  std::vector<char*> pointers;
  for (std::string& one : environment) pointers.push_back(one.data());
  pointers.push_back(nullptr);
  std::array<int, 2> started{};
  EXPECT_EQ(::pipe2(started.data(), O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::execle("/bin/sleep", "sleep", "1000", nullptr, pointers.data());
    ::_exit(127);
  }
  ::close(started[1]);
  char byte = 0;
  EXPECT_EQ(::read(started[0], &byte, 1), 0);  // exec closes the other end
  ::close(started[0]);
  std::vector<Gpu> gpus{gpu_with({child})};
  ProcessMemoryReader(30s).read_into(gpus);
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0) << "it runs";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return gpus[0].processes[0].lease;
}

TEST(ProcessMemoryReader, does_not_guess_about_the_part_of_an_environment_that_it_has_not_read) {
  const std::string lease = "BERTH_LEASE=abcdefgh";
  const std::string large = "X=" + std::string(100'000, 'x');
  EXPECT_EQ(read_lease_with_environment({"A=1"}), "");
  EXPECT_EQ(read_lease_with_environment({large, lease}), "abcdefgh");
  EXPECT_EQ(read_lease_with_environment({lease, large, large, large}), "abcdefgh");
  EXPECT_EQ(read_lease_with_environment({large, large, large, lease}), std::nullopt);
  EXPECT_EQ(read_lease_with_environment({large, large, large}), std::nullopt);
  // An entry that is truncated at the limit must not be read as a shorter one.
  for (std::size_t before = 0; before < lease.size(); before += 3) {
    const std::string filled = "X=" + std::string((256 << 10) - 200'006 - 3 - before, 'x');
    EXPECT_EQ(read_lease_with_environment({large, large, filled, lease}).value_or("abcdefgh"),
              "abcdefgh");
  }
}

TEST(ProcessMemoryReader, reads_all_but_the_process_that_is_stuck) {
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  std::atomic<int> times_stuck = 0;
  ProcessMemoryReader reader(2s, [&times_stuck, released](const auto& query) {
    if (query.pid == 2) {
      ++times_stuck;
      released.wait();
    }
    return ProcessMemoryReader::ProcessFacts{std::to_string(query.pid), ""};
  });
  for (int i = 0; i < 3; ++i) {
    std::vector<Gpu> gpus{gpu_with({1, 2, 3})};
    reader.read_into(gpus);
    EXPECT_EQ(gpus[0].processes[0].lease, "1");
    EXPECT_EQ(gpus[0].processes[1].lease, std::nullopt);
    EXPECT_EQ(gpus[0].processes[2].lease, "3");
  }
  EXPECT_EQ(times_stuck, 1);  // later calls skip the process
  release.set_value();
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  for (std::optional<std::string> lease; lease != "2";) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::vector<Gpu> gpus{gpu_with({2})};
    reader.read_into(gpus);
    lease = gpus[0].processes[0].lease;
  }
}

TEST(ProcessMemoryReader, leaves_no_more_than_a_few_threads_behind) {
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  std::atomic<std::size_t> stuck = 0;
  ProcessMemoryReader reader(10ms, [&stuck, released](const auto&) {
    ++stuck;
    released.wait();
    --stuck;
    return ProcessMemoryReader::ProcessFacts{"", ""};
  });
  std::vector<Gpu> gpus{gpu_with({1, 2, 3, 4, 5, 6, 7, 8})};
  for (int i = 0; i < 3; ++i) reader.read_into(gpus);
  EXPECT_LE(stuck, ProcessMemoryReader::kMaxStuckThreads);
  release.set_value();
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (stuck > 0) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
}

TEST(ProcessMemoryReader, looks_for_a_framework_once_and_only_in_large_processes) {
  std::vector<std::int64_t> framework_pids;
  ProcessMemoryReader reader(2s, [&framework_pids](const auto& query) {
    if (query.framework) framework_pids.push_back(query.pid);
    return ProcessMemoryReader::ProcessFacts{"", query.framework ? "JAX" : ""};
  });
  for (int i = 0; i < 2; ++i) {
    GpuSample sample;
    sample.memory_total = gib(10);
    sample.processes = gpu_with({1, 2}).processes;
    sample.processes[0].memory = gib(8);
    sample.processes[1].memory = gib(1);
    std::vector<GpuSample> samples{sample};
    reader.read_into(samples);
    EXPECT_EQ(samples[0].processes[0].framework, "JAX");
    EXPECT_EQ(samples[0].processes[1].framework, "");
  }
  EXPECT_EQ(framework_pids, std::vector<std::int64_t>{1});
}

}  // namespace
}  // namespace berth
