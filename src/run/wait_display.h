// What a person sees while a request waits: one live line on a terminal, or a line for each change
// in a file.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "lease/acquire.h"

namespace berth {

// Writes to stderr. Must outlive the callbacks that it makes.
class WaitDisplay {
 public:
  void show(const WaitStatus& status);
  void show_notice(const std::string& text);
  // Draws the live line again, with the times of now.
  void refresh();
  // Removes the live line: what follows belongs to the job.
  void finish();

  // For acquire(). `interrupt` is AcquireCallbacks::interrupt_fd.
  AcquireCallbacks make_callbacks(int interrupt);

 private:
  bool has_live_line_ = false;
  std::optional<WaitStatus> last_status_;
};

// Receivers of the state and the notices of a waiting request.
struct WaitCallbacks {
  std::function<void(const WaitStatus&)> on_wait;
  std::function<void(const std::string&)> on_notice;
};

// Waits for a lease and shows the wait. Returns the lease, or the signal by which the user
// interrupted the wait. `owner` may be the handle of the process that the lease is for: if that
// process ends, the wait ends with signal 0. Callbacks that are set replace the display.
Result<std::variant<Lease, int>> acquire_with_display(Probe& probe, AcquireRequest request,
                                                      int owner = -1,
                                                      const WaitCallbacks& callbacks = {});

// "waiting 3h 12m, starts in about 10m, position 2 of 3: GPU 0 leased by bob (train.py)". If no
// start is expected, the next GPU that becomes free: "waiting, next free: GPU 3 in about 40m, ...".
std::string format_wait_status(const WaitStatus& status, TimePoint now);

}  // namespace berth
