// Measures the cost of leases, against Redis and under load. Prints JSON for bench.py.
//
// - lease_bench pairs ROUNDS PORT: acquire + release against BRPOP + LPUSH, in one process
// - lease_bench leases TIMES: for each line of input, the median in us of TIMES acquire + release
// - lease_bench load WORKERS JOBS COMMAND...: JOBS runs of COMMAND by WORKERS workers
#include <algorithm>
#include <atomic>
#include <new>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "bench/bench_tools.h"

extern char** environ;

namespace {

using namespace berth::bench;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

template <class Function>
double median_time(int times, Function function) {
  std::vector<double> durations;
  for (int i = 0; i < times; ++i) {
    const auto begin = Clock::now();
    function();
    durations.push_back(Microseconds(Clock::now() - begin).count());
  }
  return median(std::move(durations));
}

void lease_once(berth::Probe& probe) {
  berth::Lease lease = acquire_lease(probe);
  release_lease(lease);
}

// Each line of the input starts a round, so that the caller can alternate with rounds of another
// process.
int measure_leases(int times) {
  const auto probe = open_probe();
  lease_once(*probe);
  for (int c = std::getchar(); c != EOF; c = std::getchar()) {
    if (c != '\n') continue;
    std::printf("%.2f\n", median_time(times, [&probe] { lease_once(*probe); }));
    std::fflush(stdout);
  }
  return 0;
}

// The first two processors that this process may use; empty if it has only one.
std::vector<int> two_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) die("cannot read the affinity");
  std::vector<int> found;
  for (int cpu = 0; cpu < CPU_SETSIZE && found.size() < 2; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) found.push_back(cpu);
  }
  return found.size() == 2 ? found : std::vector<int>{};
}

void run_on(int cpu) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(cpu, &only);
  if (::sched_setaffinity(0, sizeof only, &only) != 0) die("cannot set the affinity");
}

// Both sides are a client and a process that replies to it: berth and its helper of the driver, a
// client and the Redis server. A round trip takes four times as long if the kernel puts the two on
// one processor or lets the other processor sleep. So the client runs on the first processor, and
// what replies on the second, as on an idle host; bench.py puts the server there.
int measure_pairs(int rounds, int port) {
  constexpr int kTimes = 500;
  const std::vector<int> processors = two_processors();
  if (!processors.empty()) run_on(processors[1]);  // the helper, which the first lease starts
  const auto probe = open_probe();
  BareRedis redis(port);
  redis.command("LPUSH gpus 0");
  lease_once(*probe);
  if (!processors.empty()) run_on(processors[0]);
  std::printf("[");
  for (int i = 0; i < rounds; ++i) {
    const double ours = median_time(kTimes, [&probe] { lease_once(*probe); });
    const double theirs = median_time(kTimes, [&redis] {
      redis.command("BRPOP gpus 0");
      redis.command("LPUSH gpus 0");
    });
    std::printf("%s{\"berth_us\": %.2f, \"redis_us\": %.2f}", i == 0 ? "" : ", ", ours, theirs);
  }
  std::printf("]\n");
  return 0;
}

// Shared by all workers.
struct LoadState {
  std::atomic<int>* next;
  double* done_ms;
};

void run_jobs(const LoadState& state, int jobs, char** command, Clock::time_point begin) {
  for (;;) {
    const int job = state.next->fetch_add(1);
    if (job >= jobs) return;
    pid_t pid = 0;
    int status = 0;
    if (::posix_spawnp(&pid, command[0], nullptr, nullptr, command, environ) != 0 ||
        ::waitpid(pid, &status, 0) != pid || status != 0) {
      die("a job failed");
    }
    state.done_ms[job] = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }
}

int measure_load(int workers, int jobs, char** command) {
  void* memory = shared_memory(sizeof(double) * static_cast<std::size_t>(jobs + 1));
  const LoadState state{new (memory) std::atomic<int>(0), static_cast<double*>(memory) + 1};
  const auto begin = Clock::now();
  for (int i = 0; i < workers; ++i) {
    if (::fork() == 0) {
      run_jobs(state, jobs, command, begin);
      ::_exit(0);
    }
  }
  int status = 0;
  bool succeeded = true;
  while (::wait(&status) > 0) succeeded = succeeded && status == 0;
  if (!succeeded) die("a worker failed");
  std::sort(state.done_ms, state.done_ms + jobs);
  std::printf("[");
  for (int i = 0; i < jobs; ++i) std::printf("%s%.2f", i == 0 ? "" : ", ", state.done_ms[i]);
  std::printf("]\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "pairs" && argc == 4)
    return measure_pairs(parse_number(argv[2]), parse_number(argv[3]));
  if (mode == "leases" && argc == 3) return measure_leases(parse_number(argv[2]));
  if (mode == "load" && argc > 4)
    return measure_load(parse_number(argv[2]), parse_number(argv[3]), argv + 4);
  die("wrong arguments; the comment in bench/lease_bench.cpp shows them");
}
