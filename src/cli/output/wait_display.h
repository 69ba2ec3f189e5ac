// What a person sees while a request waits: one live line on a terminal, one line per change in a
// file.
#pragma once

#include <string>
#include <variant>

#include "broker/acquire.h"

namespace berth {

// Writes to stderr. Its hooks refer to it.
class WaitDisplay {
 public:
  void show(const WaitNews& news);
  void notice(const std::string& text);
  // Takes the live line away: what follows belongs to the job.
  void finish();

  // For acquire(); `interrupt` as in Hooks.
  Hooks hooks(int interrupt);

 private:
  bool line_ = false;  // the live line stands there
  std::string last_;
};

// Waits for a lease and shows how it goes: the lease, or the signal by which the user left.
Result<std::variant<Lease, int>> wait_for(Probe& probe, Ask ask);

// "position 2 of 3: GPU 0 leased by bob (train.py); expected in about 10m".
std::string wait_text(const WaitNews& news, TimePoint now);

}  // namespace berth
