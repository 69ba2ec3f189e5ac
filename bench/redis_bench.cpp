// Measures the cost of a Redis harbour of several hosts. Prints JSON for redis_bench.py.
//
// - redis_bench handover ROUNDS TIMES PORT DIRECTORY: the time from a release to the grant that it
//   makes possible, against a bare LPUSH to BRPOP, between two processes. The bells of the second
//   process are in DIRECTORY, so that the two can wake each other only through Redis.
// - redis_bench hosts HOSTS CLIENTS HOLD_MS FOLDER: on each of HOSTS hosts, CLIENTS clients
//   acquire a lease, hold it for HOLD_MS and release it, repeatedly. Each line of input prints the
//   number of grants so far.
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <fmt/format.h>
#include <new>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "bench/bench_tools.h"

namespace {

using namespace berth::bench;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Shared by the two processes. Their clock is the same.
struct HandoverState {
  std::atomic<bool> started;
  std::atomic<Clock::rep> released_at;  // when the GPU was last released
};

// One of the two processes. The holder waits until the other process waits for the GPU, and then
// releases it.
template <class Acquire, class Release, class IsWanted>
void hand_over(int side, int times, HandoverState& state, double* gaps_us, Acquire acquire,
               Release release, IsWanted is_wanted) {
  // Also the time after which a process that has made its request sleeps.
  constexpr std::chrono::milliseconds kPollInterval(10);
  ::alarm(300);  // a lost hand-over ends the run
  while (side == 1 && !state.started) std::this_thread::sleep_for(kPollInterval);
  for (int i = 0; i < times; ++i) {
    acquire();
    const auto now = Clock::now().time_since_epoch().count();
    gaps_us[i] = Microseconds(Clock::duration(now - state.released_at)).count();
    state.started = true;
    const bool is_last = side == 1 && i == times - 1;
    while (!is_last && !is_wanted()) std::this_thread::sleep_for(kPollInterval);
    std::this_thread::sleep_for(kPollInterval);
    state.released_at = Clock::now().time_since_epoch().count();
    release();
  }
}

void hand_over_leases(int side, int times, int port, HandoverState& state, double* gaps_us) {
  const auto probe = open_probe();
  BareRedis redis(port);
  std::optional<berth::Lease> lease;
  hand_over(
      side, times, state, gaps_us, [&] { lease.emplace(acquire_lease(*probe)); },
      [&] { release_lease(*lease); },
      [&] { return redis.command("ZCARD berth:handover:queue") == "1"; });
}

void hand_over_bare(int side, int times, int port, HandoverState& state, double* gaps_us) {
  BareRedis redis(port);
  hand_over(
      side, times, state, gaps_us, [&] { redis.command("BRPOP gpus 0"); },
      [&] { redis.command("LPUSH gpus 0"); },
      [&] {
        return redis.command("INFO clients").find("blocked_clients:1\r") != std::string::npos;
      });
}

void check_children() {
  int status = 0;
  bool succeeded = true;
  while (::wait(&status) > 0) succeeded = succeeded && status == 0;
  if (!succeeded) die("a child process failed");
}

// The median of both directions. Each side is a new process, since forks must not share a
// connection.
template <class Side>
double handover_us(int times, int port, const char* other_directory, Side side) {
  const auto count = static_cast<std::size_t>(times);
  void* memory = shared_memory(sizeof(HandoverState) + 2 * count * sizeof(double));
  auto* state = new (memory) HandoverState{};  // cppcheck-suppress legacyUninitvar
  auto* gaps = reinterpret_cast<double*>(state + 1);
  for (int i : {0, 1}) {
    if (::fork() != 0) continue;
    ::setenv("BERTH_HOST", "handover", 1);
    if (i == 1) ::setenv("BERTH_DIR", other_directory, 1);
    side(i, times, port, *state, i == 0 ? gaps : gaps + count);
    std::_Exit(0);
  }
  check_children();
  // Without the first acquisition, which follows no release.
  return median({gaps + 1, gaps + 2 * count});
}

int measure_handover(int rounds, int times, int port, const char* other_directory) {
  BareRedis redis(port);
  redis.command("LPUSH gpus 0");
  std::printf("[");
  for (int i = 0; i < rounds; ++i) {
    const double ours = handover_us(times, port, other_directory, hand_over_leases);
    const double theirs = handover_us(times, port, other_directory, hand_over_bare);
    std::vector<double> pings;
    for (int ping = 0; ping < 2 * times; ++ping) {
      const auto begin = Clock::now();
      redis.command("PING");
      pings.push_back(Microseconds(Clock::now() - begin).count());
    }
    std::printf("%s{\"berth_us\": %.2f, \"redis_us\": %.2f, \"ping_us\": %.2f}", i == 0 ? "" : ", ",
                ours, theirs, median(std::move(pings)));
  }
  std::printf("]\n");
  return 0;
}

// Repeats one answer of the driver: a thousand driver sessions would hide the cost of Redis.
class CachedProbe : public berth::Probe {
 public:
  explicit CachedProbe(berth::Snapshot cached) : snapshot_(std::move(cached)) {}
  berth::Result<berth::Snapshot> snapshot() override { return snapshot_; }
  berth::Result<berth::Topology> topology() override { return berth::Topology{}; }
  berth::Result<std::vector<berth::GpuSample>> sample(
      const std::vector<std::string>& uuids) override {
    return std::vector<berth::GpuSample>(uuids.size());
  }

 private:
  berth::Snapshot snapshot_;
};

[[noreturn]] void run_host(const std::string& folder, int index, int clients,
                           std::chrono::milliseconds hold, std::atomic<long>& granted) {
  const std::string directory = fmt::format("{}/host{}", folder, index);
  if (::mkdir(directory.c_str(), 0755) != 0 || ::chmod(directory.c_str(), 01777) != 0) {
    die("cannot create the directory " + directory);
  }
  ::setenv("BERTH_DIR", directory.c_str(), 1);
  ::setenv("BERTH_HOST", fmt::format("host{}", index).c_str(), 1);
  auto snapshot = open_probe()->snapshot();
  if (!snapshot) die(snapshot.error().message);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(clients));
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([&snapshot, &granted, hold] {
      CachedProbe probe(*snapshot);
      for (;;) {
        berth::Lease lease = acquire_lease(probe);
        ++granted;
        std::this_thread::sleep_for(hold);
        release_lease(lease);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::_Exit(0);
}

int measure_hosts(int count, int clients, int hold_ms, const std::string& folder) {
  auto& granted = *new (shared_memory(sizeof(std::atomic<long>))) std::atomic<long>(0);
  std::vector<pid_t> started;
  for (int i = 0; i < count; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) run_host(folder, i, clients, std::chrono::milliseconds(hold_ms), granted);
    started.push_back(pid);
  }
  for (int c = std::getchar(); c != EOF; c = std::getchar()) {
    if (c != '\n') continue;
    std::printf("%ld\n", granted.load());
    std::fflush(stdout);
  }
  for (const pid_t pid : started) ::kill(pid, SIGKILL);
  while (::wait(nullptr) > 0) {
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "handover" && argc == 6) {
    return measure_handover(parse_number(argv[2]), parse_number(argv[3]), parse_number(argv[4]),
                            argv[5]);
  }
  if (mode == "hosts" && argc == 6) {
    return measure_hosts(parse_number(argv[2]), parse_number(argv[3]), parse_number(argv[4]),
                         argv[5]);
  }
  die("wrong arguments; the comment in bench/redis_bench.cpp shows them");
}
