// Finds the processes that keep a lease alive: those that have its bell open for reading.
//
// A user can see only their own processes; root sees all.
#pragma once

#include <cstddef>
#include <string>
#include <sys/stat.h>
#include <sys/types.h>
#include <vector>

#include "harbour/record.h"

namespace berth {

// "python (pid 4711), sh (pid 4712)"; empty if no such process is visible. Reads all of /proc.
std::string format_bell_holders(const Record& record);

// True if the process `pid` has the bell open. More certain than Record::pid alone: the kernel may
// have given that PID to another process.
bool holds_bell(const Record& record, pid_t pid);

// The bells of several leases, for a search through many processes: each process is read once.
class BellSearch {
 public:
  // Returns the number of the bell, as held_by() gives it.
  std::size_t add(const Record& record);
  // The numbers of the bells that the process has open.
  std::vector<std::size_t> held_by(pid_t pid) const;

 private:
  struct Bell {
    std::size_t number;
    struct stat file;
  };
  std::size_t count_ = 0;
  std::vector<Bell> bells_;  // those that a process of this PID namespace can hold
};

}  // namespace berth
