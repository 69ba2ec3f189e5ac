// Reads facts about the processes on the GPUs from /proc: names, users, ancestors, environments.
//
// Only helper processes (helper_process.h) use this. Reading /proc/PID/environ or /proc/PID/maps
// waits for the memory lock of that process, which a hung driver may hold for ever. So it must not
// happen under the harbour's lock or in Berth's own process.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "devices/gpu.h"

namespace berth {

struct ProcessIdentity {
  uid_t uid = 0;  // the real uid
  uid_t effective_uid = 0;
  bool is_root = false;  // see Ancestor
  std::string name;
  pid_t parent = 0;
};

// Reads /proc/PID/status. nullopt: the process does not exist, hidepid hides it, or this process is
// not in the host's PID namespace. In a container, the driver's PID may belong to an unrelated
// process, and a wrong name is worse than no name. So nullopt does not prove that the process has
// exited.
std::optional<ProcessIdentity> identify_process(std::int64_t pid);

// A cache of identities for one snapshot. Processes that are on several GPUs, and common ancestors,
// are read once.
class ProcessTable {
 public:
  // Sets name, uid and lineage, as far as /proc shows them; false if the name is unknown.
  bool identify(GpuProcess& process);

 private:
  const std::optional<ProcessIdentity>& look_up(std::int64_t pid);

  std::map<std::int64_t, std::optional<ProcessIdentity>> cache_;
};

// Reads BERTH_LEASE (GpuProcess::lease) and the loaded framework from the memory of processes.
//
// Threads that can be abandoned do the reading. If a process blocks its thread longer than
// `timeout`, its facts stay unknown, now and in later calls until that thread returns; all other
// processes are read as usual. With kMaxStuckThreads blocked threads, no process is read any more.
// Not thread-safe.
class ProcessMemoryReader {
 public:
  static constexpr std::size_t kMaxStuckThreads = 3;

  struct ProcessQuery {
    std::int64_t pid = 0;
    bool framework = false;
  };
  struct ProcessFacts {
    std::optional<std::string> lease;
    std::string framework;
  };
  using Read = std::function<ProcessFacts(const ProcessQuery&)>;

  // `read` is for tests; the default reads /proc.
  explicit ProcessMemoryReader(std::chrono::milliseconds timeout = std::chrono::milliseconds(500),
                               Read read = nullptr);

  // Sets `lease`, and in samples the `framework` of processes that use most of `memory_total`.
  // Skips processes without a lineage. Starts no thread and makes no system call if there is no
  // process.
  void read_into(std::vector<Gpu>& gpus);
  void read_into(std::vector<GpuSample>& samples);

 private:
  struct ReaderThread;

  void read(std::map<std::int64_t, ProcessFacts>& found, std::vector<ProcessQuery> queries);
  bool is_stuck(std::int64_t pid) const;

  std::chrono::milliseconds timeout_;
  Read read_;
  std::vector<std::shared_ptr<ReaderThread>> stuck_;  // the abandoned threads
  std::map<std::int64_t, std::string> frameworks_;    // of processes that were searched already
};

}  // namespace berth
