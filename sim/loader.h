// Loads the server that the environment describes, when a simulated driver is initialised.
#pragma once

#include "sim/machine.h"

namespace berth::sim {

struct LoadResult {
  const Machine* machine = nullptr;  // valid until the process exits
  const char* problem = nullptr;     // one line, valid until the process exits; nullptr: no problem
  bool usage = false;   // the problem is the description in BERTH_SIM, not the state file
  bool absent = false;  // BERTH_SIM is not set: there is no driver
};

// Reads the environment at each call, so that a program may change it between two sessions. Reads
// the files again only if they have changed. Thread-safe; never throws.
LoadResult load_machine() noexcept;

}  // namespace berth::sim
