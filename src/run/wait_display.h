// What a person sees while a request waits: one live line on a terminal, one line per change in a
// file.
#pragma once

#include <functional>
#include <string>
#include <variant>

#include "lease/acquire.h"

namespace berth {

// Writes to stderr. Its hooks refer to it.
class WaitDisplay {
 public:
  void show(const WaitStatus& status);
  void show_notice(const std::string& text);
  // Takes the live line away: what follows belongs to the job.
  void finish();

  // For acquire(); `interrupt` as in Hooks.
  AcquireCallbacks make_callbacks(int interrupt);

 private:
  bool has_live_line_ = false;  // the live line stands there
  std::string last_text_;
};

// Who takes the news of a request that waits, and its notices.
struct WaitCallbacks {
  std::function<void(const WaitStatus&)> on_wait;
  std::function<void(const std::string&)> on_notice;
};

// Waits for a lease and shows how it goes: the lease, or the signal by which the user left. `owner`
// may be the handle of the process that the lease is for: if that ends nobody waits for it any
// more, and the signal is 0.
// `callbacks` may take what would be shown instead.
Result<std::variant<Lease, int>> acquire_with_display(Probe& probe, AcquireRequest request,
                                                      int owner = -1,
                                                      const WaitCallbacks& callbacks = {});

// "position 2 of 3: GPU 0 leased by bob (train.py); expected in about 10m".
std::string format_wait_status(const WaitStatus& status, TimePoint now);

}  // namespace berth
