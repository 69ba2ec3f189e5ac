// The processes on the GPUs as /proc shows them: names, users, ancestors, environments.
//
// Only helper processes (helper_process.h) use this. Reading /proc/PID/environ or /proc/PID/maps
// waits for the memory lock of that process, which a hung driver may hold for ever, so it must
// happen neither under the harbour's lock nor in berth's own loop.
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
  uid_t uid = 0;  // the real one
  uid_t effective_uid = 0;
  bool is_root = false;  // see Ancestor
  std::string name;
  pid_t parent = 0;
};

// /proc/PID/status. Nothing if the process is gone, hidden from us (hidepid), or if our PIDs are
// not the host's: in a container a driver's PID may be the number of a quite different process, and
// a wrong name is worse than none. A missing PID is not proof of death.
std::optional<ProcessIdentity> identify_process(std::int64_t pid);

// The identities of one moment. Processes that are on several GPUs, or have ancestors in common,
// are read once.
class ProcessTable {
 public:
  // Sets name, uid and lineage, as far as /proc shows them; false if it hides the name.
  bool identify(GpuProcess& process);

 private:
  const std::optional<ProcessIdentity>& look_up(std::int64_t pid);

  std::map<std::int64_t, std::optional<ProcessIdentity>> cache_;
};

// What is read of a process's memory: BERTH_LEASE (GpuProcess::lease), and the framework that it
// has loaded.
//
// The reading is done by threads that can be left behind. A process that keeps its reader waiting
// longer than `timeout` goes without, and so does every later reading until that reader returns;
// all other processes are read as usual. With kMaxStuckThreads such readers nothing is read any
// more. Not safe for several threads at once.
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

  // `read` is for tests; by default /proc is read.
  explicit ProcessMemoryReader(std::chrono::milliseconds timeout = std::chrono::milliseconds(500),
                               Read read = nullptr);

  // Fills in `lease`, and `framework` of the processes that use most of `memory_total`. Processes
  // without a lineage are left out. Starts no thread, and makes no system call, for no process.
  void read_into(std::vector<Gpu>& gpus);
  void read_into(std::vector<GpuSample>& samples);

 private:
  struct ReaderThread;

  void read(std::map<std::int64_t, ProcessFacts>& found, std::vector<ProcessQuery> queries);
  bool is_stuck(std::int64_t pid) const;

  std::chrono::milliseconds timeout_;
  Read read_;
  std::vector<std::shared_ptr<ReaderThread>> stuck_;  // whose thread was left behind
  std::map<std::int64_t, std::string> frameworks_;    // of processes that were looked at already
};

}  // namespace berth
