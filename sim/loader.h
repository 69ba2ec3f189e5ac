// The server that the environment of this process describes, loaded when a driver is initialised.
#pragma once

#include "sim/machine.h"

namespace berth::sim {

struct LoadResult {
  const Machine* machine = nullptr;  // valid for as long as the process lives
  const char* problem = nullptr;     // one line, valid as long; null if there is none
  bool usage = false;   // the problem lies in what BERTH_SIM says, not in the state file
  bool absent = false;  // BERTH_SIM is not set: there is no driver
};

// Looks at the environment again each time, so that a program may change it between two sessions;
// what did not change is not read again. Thread-safe; never throws.
LoadResult load_machine() noexcept;

}  // namespace berth::sim
