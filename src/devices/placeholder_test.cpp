// Tests of placeholder.h on the simulated driver: with helpers, jobs, and drivers that fail or
// hang.
#include "devices/placeholder.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/process.h"
#include "devices/guarded_probe.h"

namespace berth {
namespace {

using namespace std::chrono_literals;

// Waits until `condition` holds. The limit is reached only if the test fails.
bool eventually(const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + 30s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    ::poll(nullptr, 0, 10);
  }
  return true;
}

void exec_job(const std::string& uuid) {
  ::setenv("CUDA_VISIBLE_DEVICES", uuid.c_str(), 1);
  ::execl(BERTH_TEST_BIN_DIR "/berth-sim-job", "berth-sim-job", "--mem", "64MiB", "--quiet",
          nullptr);
  ::_exit(127);
}

// A child process of the test, which is killed with this object or with its parent.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    ::_exit(0);
  }
  ~Child() { kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  int finish() {
    int status = -1;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

// A job that is not a descendant of the test: its parent exits before the job is on the GPU.
class Stranger {
 public:
  explicit Stranger(const std::string& uuid) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    Child between([&] {
      const pid_t parent = ::getpid();
      const pid_t job = ::fork();
      if (job == 0) {
        while (::getppid() == parent) ::usleep(1000);
        exec_job(uuid);
      }
      EXPECT_EQ(::write(ends[1], &job, sizeof job), static_cast<ssize_t>(sizeof job));
    });
    EXPECT_EQ(::read(ends[0], &pid_, sizeof pid_), static_cast<ssize_t>(sizeof pid_));
    handle_ = open_process(pid_);
    between.finish();
    for (const int fd : ends) ::close(fd);
  }
  ~Stranger() { send_signal(handle_, SIGKILL); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  UniqueFd handle_;
};

// Gives each test its own simulated server.
class PlaceholderTest : public testing::Test {
 protected:
  PlaceholderTest() {
    std::string pattern = testing::TempDir() + "berth-placeholder-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    ::setenv("BERTH_SIM_STATE", (folder_ + "/state").c_str(), 1);
    settings_.nvml = BERTH_TEST_SIM_DIR "/libnvidia-ml.so.1";
    settings_.cuda = BERTH_TEST_SIM_DIR "/libcuda.so.1";
    settings_.poll_interval = 10ms;
  }
  ~PlaceholderTest() override {
    for (const char* name : {"/state", "/server.json"}) ::unlink((folder_ + name).c_str());
    ::rmdir(folder_.c_str());
  }
  void simulate(const std::string& server) {
    const std::string file = folder_ + "/server.json";
    if (server.starts_with('{')) std::ofstream(file) << server;
    ::setenv("BERTH_SIM", server.starts_with('{') ? file.c_str() : server.c_str(), 1);
  }
  std::vector<Gpu> gpus() {
    GuardedProbeSettings guard;
    guard.library = settings_.nvml;
    auto snapshot = GuardedProbe(std::move(guard)).snapshot();
    EXPECT_TRUE(snapshot) << snapshot.error().message;
    return snapshot ? std::move(snapshot->gpus) : std::vector<Gpu>{};
  }
  std::vector<std::string> uuids() {
    std::vector<std::string> all;
    for (const Gpu& gpu : gpus()) all.push_back(gpu.uuid.value_or(""));
    return all;
  }
  std::vector<pid_t> pids_on(std::size_t index) {
    std::vector<pid_t> pids;
    const auto seen = gpus();
    for (const GpuProcess& process : seen.at(index).processes) {
      pids.push_back(static_cast<pid_t>(process.pid));
    }
    return pids;
  }
  bool is_pid_on_gpu(std::size_t index, pid_t pid) {
    const auto pids = pids_on(index);
    return std::find(pids.begin(), pids.end(), pid) != pids.end();
  }
  // Each sleep and wake-up is a context switch: more of them show that the helper has polled again.
  static bool wait_for_polls(pid_t helper) {
    const auto switches = [&] {
      std::ifstream status("/proc/" + std::to_string(helper) + "/status");
      for (std::string word; status >> word;) {
        long count = 0;
        if (word == "voluntary_ctxt_switches:" && status >> count) return count;
      }
      return -1L;
    };
    const long before = switches();
    return eventually([&] { return switches() >= before + 5 || switches() < 0; });
  }

  std::string folder_;
  PlaceholderSettings settings_;
};

TEST_F(PlaceholderTest, shows_on_each_gpu_and_nowhere_else) {
  simulate("3x8GiB");
  auto all = uuids();
  all.pop_back();
  auto placeholders = Placeholders::start(all, settings_);
  ASSERT_TRUE(placeholders) << placeholders.error().message;
  const auto pids = placeholders->pids();
  ASSERT_EQ(pids.size(), 2U);
  const auto seen = gpus();
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(seen[i].processes.size(), 1U);
    EXPECT_EQ(seen[i].processes[0].pid, pids[i]);
    EXPECT_EQ(seen[i].processes[0].memory, mib(16));
    EXPECT_EQ(seen[i].processes[0].name, "berth-hold");
  }
  EXPECT_TRUE(seen[2].processes.empty());
}

TEST_F(PlaceholderTest, goes_when_it_is_stopped_and_with_its_owner) {
  simulate("1x8GiB");
  auto placeholders = Placeholders::start(uuids(), settings_);
  ASSERT_TRUE(placeholders) << placeholders.error().message;
  placeholders->stop();
  EXPECT_TRUE(pids_on(0).empty());
  EXPECT_TRUE(placeholders->pids().empty());
  {
    auto first = Placeholders::start(uuids(), settings_);
    ASSERT_TRUE(first);
    const Placeholders second = std::move(*first);
    EXPECT_EQ(pids_on(0).size(), 1U);
  }
  EXPECT_TRUE(pids_on(0).empty());
}

TEST_F(PlaceholderTest, makes_way_for_the_job_on_its_gpu) {
  simulate("2x8GiB");
  const auto all = uuids();
  auto placeholders = Placeholders::start(all, settings_);
  ASSERT_TRUE(placeholders) << placeholders.error().message;
  const pid_t other = placeholders->pids()[1];
  // A grandchild, as when a shell starts a training script.
  const Child shell([&] {
    const Child job([&] { exec_job(all[0]); });
    for (;;) ::pause();
  });
  EXPECT_TRUE(eventually([&] { return placeholders->pids().size() == 1; }));
  EXPECT_EQ(placeholders->pids(), std::vector<pid_t>{other});
  EXPECT_EQ(pids_on(0).size(), 1U) << "the job alone";
}

TEST_F(PlaceholderTest, stays_while_only_others_use_the_gpu) {
  simulate("1x8GiB");
  const auto all = uuids();
  auto placeholders = Placeholders::start(all, settings_);
  ASSERT_TRUE(placeholders) << placeholders.error().message;
  const pid_t helper = placeholders->pids()[0];
  const Stranger stranger(all[0]);
  ASSERT_TRUE(eventually([&] { return is_pid_on_gpu(0, stranger.pid()); }));
  // Another placeholder of this process does not count as a job either.
  auto another = Placeholders::start(all, settings_);
  ASSERT_TRUE(another) << another.error().message;
  ASSERT_TRUE(wait_for_polls(helper));
  EXPECT_EQ(placeholders->pids(), std::vector<pid_t>{helper});
  EXPECT_EQ(another->pids().size(), 1U);
  EXPECT_EQ(pids_on(0).size(), 3U);
}

// In a container the driver's PIDs cannot be looked up: any new process counts as the job.
TEST_F(PlaceholderTest, in_a_container_makes_way_for_any_newcomer) {
  simulate("1x8GiB");
  const auto all = uuids();
  Child container([&] {
    if (::unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) ::_exit(77);
    Child first([&] {
      if (::mount("", "/", "", MS_PRIVATE | MS_REC, "") != 0) ::_exit(77);
      if (::mount("proc", "/proc", "proc", 0, "") != 0) ::_exit(77);
      // Two processes of a container: the helper's parent, and one that is not its descendant.
      std::array<int, 2> started{};
      if (::pipe(started.data()) != 0) ::_exit(1);
      Child parent([&] {
        auto placeholders = Placeholders::start(all, settings_);
        const bool good = placeholders && placeholders->pids().size() == 1;
        const bool looked = good && wait_for_polls(placeholders->pids()[0]);
        const bool stayed = looked && placeholders->pids().size() == 1;
        if (!stayed || ::write(started[1], "x", 1) != 1) ::_exit(2);
        ::_exit(eventually([&] { return placeholders->pids().empty(); }) ? 0 : 3);
      });
      ::close(started[1]);
      char byte = 0;
      if (::read(started[0], &byte, 1) != 1) ::_exit(4);
      const Child job([&] { exec_job(all[0]); });
      ::_exit(WEXITSTATUS(parent.finish()));  // this is PID 1: the kernel kills all others, too
    });
    ::_exit(WEXITSTATUS(first.finish()));
  });
  const int status = WEXITSTATUS(container.finish());
  if (status == 77) GTEST_SKIP() << "PID namespaces are not allowed here";
  EXPECT_EQ(status, 0);
}

TEST_F(PlaceholderTest, goes_when_its_parent_is_killed) {
  simulate("1x8GiB");
  const auto all = uuids();
  Child parent([&] {
    auto placeholders = Placeholders::start(all, settings_);
    for (;;) ::pause();
  });
  ASSERT_TRUE(eventually([&] { return pids_on(0).size() == 1; }));
  parent.kill();
  EXPECT_TRUE(eventually([&] { return pids_on(0).empty(); }));
}

// A helper that hangs in a call does not notice that its parent closes the socket.
TEST_F(PlaceholderTest, goes_when_its_parent_is_killed_while_the_driver_hangs) {
  simulate(R"({"gpus":[{"memory":"8GiB"}], "faults":[{"call":"cuMemAlloc","hang":true}]})");
  const auto all = uuids();
  Child parent([&] {
    auto placeholders = Placeholders::start(all, settings_);
    for (;;) ::pause();
  });
  ASSERT_TRUE(eventually([&] { return pids_on(0).size() == 1; }));
  parent.kill();
  EXPECT_TRUE(eventually([&] { return pids_on(0).empty(); }));
}

class PlaceholderFailure : public PlaceholderTest {
 protected:
  // Starting on all GPUs fails with this message, and no helper remains.
  void expect_failure(ErrorKind kind, const std::string& words) {
    const auto placeholders = Placeholders::start(uuids(), settings_);
    ASSERT_FALSE(placeholders);
    EXPECT_EQ(placeholders.error().kind, kind);
    EXPECT_NE(placeholders.error().message.find(words), std::string::npos)
        << placeholders.error().message;
    for (const Gpu& gpu : gpus()) EXPECT_TRUE(gpu.processes.empty());
  }
};

TEST_F(PlaceholderFailure, names_the_gpu_and_the_error) {
  simulate(R"({"gpus":[{"memory":"8GiB"},
                       {"memory":"8GiB","compute_mode":"prohibited",
                        "uuid":"GPU-00000000-0000-0000-0000-000000000007"}]})");
  expect_failure(ErrorKind::no_driver,
                 "no placeholder on GPU-00000000-0000-0000-0000-000000000007: "
                 "cuDevicePrimaryCtxRetain failed with CUDA_ERROR_DEVICE_UNAVAILABLE (");
}

TEST_F(PlaceholderFailure, no_memory_is_left) {
  simulate(R"({"gpus":[{"memory":"8GiB","context_memory":"8GiB"}]})");
  expect_failure(ErrorKind::no_driver, "CUDA_ERROR_OUT_OF_MEMORY (");
}

TEST_F(PlaceholderFailure, it_would_keep_the_job_out) {
  simulate(R"({"gpus":[{"memory":"8GiB","compute_mode":"exclusive-process"}]})");
  expect_failure(ErrorKind::impossible, "exclusive-process mode");
}

TEST_F(PlaceholderFailure, the_driver_hangs) {
  simulate(R"({"gpus":[{"memory":"8GiB"}], "faults":[{"call":"cuInit","hang":true}]})");
  settings_.timeout = 300ms;
  expect_failure(ErrorKind::no_driver, "did not answer in time");
}

TEST_F(PlaceholderFailure, the_driver_crashes) {
  simulate("1x8GiB");
  const auto all = uuids();
  settings_.nvml = BERTH_TEST_CRASHING_DRIVER;
  const auto placeholders = Placeholders::start(all, settings_);
  ASSERT_FALSE(placeholders);
  EXPECT_NE(placeholders.error().message.find("ended unexpectedly"), std::string::npos)
      << placeholders.error().message;
}

TEST_F(PlaceholderFailure, there_is_no_such_gpu_or_no_such_library) {
  simulate("1x8GiB");
  const auto unknown = Placeholders::start({"GPU-unknown"}, settings_);
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("no placeholder on GPU-unknown: "), std::string::npos)
      << unknown.error().message;
  settings_.cuda = folder_ + "/libcuda.so.1";
  expect_failure(ErrorKind::no_driver, "cannot be loaded (");
}

}  // namespace
}  // namespace berth
