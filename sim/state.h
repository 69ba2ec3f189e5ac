// What the processes on a simulated server use, shared by all of them through one file.
//
// A dead process's memory disappears because the kernel says so. Each process that uses a GPU owns
// one slot of the file, and proves that it lives by a POSIX record lock on the slot's "live" byte:
// such locks die with the process, are not inherited by fork(), and carry their owner's pid. Only
// the owner writes to its slot, so a process that is killed at any line leaves a true file behind.
//
// POSIX locks are dropped when the process closes *any* descriptor of the file. So a file that was
// opened is never closed, and StateFile objects are never destroyed.
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

// The place of a unit in a slot.
constexpr std::size_t unit_number(const Unit& unit) {
  return unit.card * kUnitsPerCard + (unit.instance ? 1 + *unit.instance : 0);
}

// What one live process has on one unit.
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
  // Opens the file, or creates it. The same object for the same file each time; thread-safe. The
  // error is ErrorKind::io when the file cannot be used.
  static Result<StateFile*> open(const std::string& path);

  // How long the simulated server has been up: since its file was made, or since the host's boot.
  std::chrono::nanoseconds uptime() const;

  // Every live process with a context on `card`, by slot. Takes no lock; thread-safe.
  std::vector<ProcessUse> uses_on(std::size_t card) const;

  // The most that may be used on a unit, asked for while no other process can allocate.
  struct Limits {
    std::uint64_t memory = 0;     // what processes may use together
    bool exclusive_card = false;  // a context only if no other process has one (exclusive-process)
  };
  enum class Outcome { done, no_memory, busy, no_slot };

  // Adds a context, or memory, of this process. Nothing changes unless the outcome is done.
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
  std::optional<pid_t> read_slot(std::size_t index, std::size_t card,
                                 std::vector<ProcessUse>& uses) const;
  Outcome add(const Unit& unit, std::uint64_t memory, std::uint32_t contexts, const Limits& limits);

  const int fd_;
  StateLayout* const layout_;
  Mutex mutex_;  // POSIX locks do not exclude threads of one process
  StateSlot* slot_ GUARDED_BY(mutex_) = nullptr;  // this process's own
};

}  // namespace berth::sim
