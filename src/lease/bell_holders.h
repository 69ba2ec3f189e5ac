// Finds the processes that keep a lease alive: those that have its bell open for reading.
//
// A user can see only their own processes; root sees all.
#pragma once

#include <string>

#include "harbour/record.h"

namespace berth {

// "python (pid 4711), sh (pid 4712)"; empty if no such process is visible. Reads all of /proc.
std::string format_bell_holders(const Record& record);

// True if the process `pid` has the bell open. More certain than Record::pid alone: the kernel may
// have given that PID to another process.
bool holds_bell(const Record& record, pid_t pid);

}  // namespace berth
