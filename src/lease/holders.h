// Who keeps a lease alive: the processes that have its bell open.
#pragma once

#include <string>

#include "harbour/record.h"

namespace berth {

// "python (pid 4711), sh (pid 4712)", as far as we may look: our own processes; root sees all.
// Empty if there is none to be seen. Reads the whole of /proc.
std::string format_bell_holders(const Record& record);

// Is that process one of them, as far as we may look? A PID alone may be somebody else's by now.
bool holds_bell(const Record& record, pid_t pid);

}  // namespace berth
