// A lease that a Python program holds, and how it gets one.
#pragma once

#include <mutex>
#include <nanobind/nanobind.h>
#include <optional>
#include <string>
#include <vector>

#include "broker/archiving.h"
#include "broker/lease.h"

namespace berth::python {

// Safe for several threads. In a fork of the process that made it, it can only be let go.
class HeldLease {
 public:
  explicit HeldLease(Lease lease);

  const std::string& id() const { return lease_.id(); }
  const Lease& lease() const { return lease_; }
  const HarbourLocation& location() { return lease_.harbour().location(); }
  // The bell that programs inherit; -1 once it is released.
  int bell() const { return for_programs_.get(); }

  // False if others hold it still. In a fork: lets go of the fork's own hold.
  bool release();

  // As the history has it now; nothing once it was released.
  std::optional<HistoryEntry> entry(Ending ending);

  // Puts the lease back if somebody deleted its files, and notes it. Not in a fork.
  void restore();
  // Tells when that may be needed; -1 if nothing does.
  int deletion_watch();
  // What happened to it since the last time, for a log.
  std::vector<std::string> notices();

 private:
  HistoryEntry entry_now(Ending ending) const;

  std::mutex mutex_;
  Lease lease_;
  UniqueFd for_programs_;
  std::vector<std::string> notices_;
  pid_t maker_;
  bool released_ = false;
};

// Gives up the close-on-exec flag: programs that this process starts have it open, too.
int inheritable(UniqueFd fd);

void define_lease(nanobind::module_& module);

}  // namespace berth::python
