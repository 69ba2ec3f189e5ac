// The placeholder, for neighbours who only look at nvidia-smi: a little memory on each leased GPU
// until the job's own process shows up there.
//
// Each GPU has a helper process of its own (helper_process.h), which sees only that GPU. It leaves
// when a process of the job is on the GPU, when it is told to, and when the process that started it
// dies, however it dies: a placeholder cannot outlive its lease.
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
  std::chrono::milliseconds timeout{20'000};     // for all helpers together to have their memory
  std::chrono::milliseconds poll_interval{500};  // for the job's process
};

// The helper of one GPU.
void run_placeholder(int socket, const HelperArguments& arguments);
inline constexpr Helper kPlaceholderHelper{"berth-hold", run_placeholder};

// Not safe for several threads at once. The helpers end with the thread that called start().
class Placeholders {
 public:
  // Starts a helper for each of `uuids` (GPUs or MIG instances), on the driver that the environment
  // chooses, and returns when each has its memory. All or none: the error names the GPU. Its kind
  // is impossible for a GPU on which a placeholder would keep the job itself out (exclusive-process
  // mode), usage for a wrong setting, else no_driver. The job is whatever descends from the calling
  // process; start it afterwards.
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

  // The helpers that are still there. Those that have left are collected (wait(2)): call this when
  // SIGCHLD comes, or they stay as zombies until stop(). A caller that waits for any child may
  // collect them as well.
  std::vector<pid_t> pids();

  // Ends all helpers. Does not wait for one that hangs in the driver.
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
  pid_t owner_pid_ = -1;  // the process that has started them: a fork leaves them alone
};

}  // namespace berth
