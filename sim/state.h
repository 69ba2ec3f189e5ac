// The use of a simulated server by all its processes, shared through one file.
//
// The memory of a process disappears from the file when the process exits or is killed, without any
// action of its own. Each process that uses a GPU owns one slot of the file, and holds a POSIX
// record lock on the slot's "live" byte. The kernel releases such locks when the process ends, does
// not pass them on to forks, and reports the PID of the holder. Only the owner writes to its slot,
// so that the file is consistent if a process is killed at any line.
//
// POSIX locks are released when the process closes *any* descriptor of the file. So an open state
// file is never closed, and StateFile objects are never destroyed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "sim/server.h"

namespace berth::sim {

constexpr std::size_t kUnitsPerCard = 1 + kMaxInstances;

// The index of a unit in a slot.
constexpr std::size_t unit_number(const Unit& unit) {
  return unit.card * kUnitsPerCard + (unit.instance ? 1 + *unit.instance : 0);
}

// The use of one unit by one live process.
struct ProcessUse {
  pid_t pid = 0;
  Unit unit;
  std::uint64_t memory = 0;
  unsigned utilization = 0;
};

struct StateLayout;
struct StateSlot;

class StateFile {
 public:
  // Opens or creates the file. Returns the same object for the same file each time. Thread-safe.
  // ErrorKind::io: the file cannot be used.
  static Result<StateFile*> open(const std::string& path);

  // The time since the state file was created, or since its first use after a boot of the host.
  std::chrono::nanoseconds uptime() const;

  // The calls of nvmlInit by all processes since that time, including calls that failed.
  std::uint64_t init_calls() const;
  void count_init_call();

  // How often NVML listed the compute processes of a card since that time, for any process.
  std::uint64_t process_lists(std::size_t card) const;
  void count_process_list(std::size_t card);

  // The use by each live process with a context on `card`, in the order of slots. Takes no lock;
  // thread-safe.
  std::vector<ProcessUse> uses_on(std::size_t card) const;

  // The limits for an allocation. They are checked under a lock that excludes other allocations.
  struct Limits {
    std::uint64_t memory = 0;     // for all processes on the unit together
    bool exclusive_card = false;  // only one process may have contexts (exclusive-process mode)
  };
  enum class Outcome { done, no_memory, busy, no_slot };

  // Adds a context or memory of this process. Changes nothing unless the outcome is `done`.
  Outcome add_context(const Unit& unit, std::uint64_t memory, const Limits& limits);
  Outcome add_memory(const Unit& unit, std::uint64_t memory, const Limits& limits);
  void remove_context(const Unit& unit, std::uint64_t memory);
  void remove_memory(const Unit& unit, std::uint64_t memory);
  void set_utilization(const Unit& unit, unsigned percent);

  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;

 private:
  StateFile(int fd, StateLayout* layout) : fd_(fd), layout_(layout) {}
  static Result<StateFile*> map_file(int fd, const std::string& path);
  bool is_still_at(const std::string& path) const;
  void update_boot();
  bool claim_slot() REQUIRES(mutex_);
  void read_slot(std::size_t index, std::size_t card, std::vector<ProcessUse>& uses) const;
  Outcome add(const Unit& unit, std::uint64_t memory, std::uint32_t contexts, const Limits& limits);

  const int fd_;
  StateLayout* const layout_;
  Mutex mutex_;  // POSIX locks do not exclude other threads of the same process
  StateSlot* slot_ GUARDED_BY(mutex_) = nullptr;  // the slot of this process
};

}  // namespace berth::sim
