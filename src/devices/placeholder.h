// Placeholders: a little memory on each leased GPU until the job's own process uses the GPU. They
// show users who do not use Berth, but look at nvidia-smi, that the GPU is taken.
//
// Each GPU has its own helper process (helper_process.h), which sees only that GPU. The helper
// exits when a process of the job is on the GPU, when stop() is called, and when the process that
// started it exits or is killed: a placeholder cannot outlive its lease.
#pragma once

#include <chrono>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "devices/helper_process.h"

namespace berth {

struct PlaceholderSettings {
  std::string nvml;  // libraries to load, as for dlopen()
  std::string cuda;
  std::string program;                           // see start_helper()
  std::chrono::milliseconds timeout{20'000};     // until all helpers have allocated their memory
  std::chrono::milliseconds poll_interval{500};  // between two checks for the job's process
};

// The work of one helper process. Its arguments are the UUID, both libraries and the poll interval.
void run_placeholder(int socket, const HelperArguments& arguments);
inline constexpr Helper kPlaceholderHelper{"berth-hold", run_placeholder};

// Not thread-safe. The kernel kills the helpers when the thread that called start() ends.
class Placeholders {
 public:
  // Starts a helper for each of `uuids` (GPUs or MIG instances) with the driver that the
  // environment selects, and returns when all have allocated their memory. If one fails, all are
  // stopped, and the error names its GPU. ErrorKind::impossible: in exclusive-process mode, a
  // placeholder would keep the job itself out. usage: a setting is wrong. no_driver: all other
  // errors. The job is any descendant of the calling process; start it afterwards.
  static Result<Placeholders> start(const std::vector<std::string>& uuids);
  static Result<Placeholders> start(const std::vector<std::string>& uuids,
                                    const PlaceholderSettings& settings);

  Placeholders(Placeholders&&) noexcept = default;
  Placeholders& operator=(Placeholders&& other) noexcept {
    helpers_.swap(other.helpers_);
    std::swap(owner_pid_, other.owner_pid_);
    return *this;
  }
  Placeholders(const Placeholders&) = delete;
  Placeholders& operator=(const Placeholders&) = delete;
  ~Placeholders() { stop(); }

  // The helpers that still run. Reaps those that have exited: call this after SIGCHLD, or they stay
  // zombies until stop(). A caller that waits for any child may reap them as well.
  std::vector<pid_t> pids();

  // Kills all helpers. Does not wait for one that hangs in the driver.
  void stop();

 private:
  struct PlaceholderHelper {
    std::string uuid;
    pid_t pid = -1;
    UniqueFd handle;
    UniqueFd socket;
  };
  using Clock = std::chrono::steady_clock;

  Placeholders() = default;
  static Result<void> wait_until_ready(const PlaceholderHelper& helper, Clock::time_point deadline);

  std::vector<PlaceholderHelper> helpers_;
  pid_t owner_pid_ = -1;  // the process that started the helpers; its forks do not stop them
};

}  // namespace berth
