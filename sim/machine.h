// The present state of a simulated server: its description, the use by processes, and its faults.
//
// Both simulated libraries use this, so that NVML and CUDA always agree.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/calls.h"
#include "sim/server.h"
#include "sim/state.h"

namespace berth::sim {

// One process on one unit, as the driver lists it.
struct Process {
  std::uint32_t pid = 0;
  Unit unit;
  std::optional<std::uint64_t> memory;  // nullopt: the driver does not know
  ProcessKind kind = ProcessKind::compute;
  unsigned utilization = 0;
};

struct MemoryUse {
  std::uint64_t total = 0;
  std::uint64_t reserved = 0;
  std::uint64_t used = 0;  // without reserved memory
  std::uint64_t free() const { return total - reserved - used; }
};

// The two variables that select the simulated server and its state file.
struct ServerSource {
  std::string sim;    // BERTH_SIM; empty: there is no driver
  std::string state;  // the path of the state file, which identifies the server
  static ServerSource from_environment();
  bool operator==(const ServerSource&) const = default;
};

class Machine {
 public:
  Machine(Server server, StateFile& state) : server_(std::move(server)), state_(state) {}

  // ErrorKind::usage: the description in BERTH_SIM is wrong. ErrorKind::io: the state file cannot
  // be used. The message is one line for the user.
  static Result<Machine> load(const ServerSource& source);

  const Server& server() const { return server_; }
  const Card& card(std::size_t index) const { return server_.cards[index]; }
  StateFile& state() const { return state_; }
  std::chrono::nanoseconds uptime() const { return state_.uptime(); }

  // Applies the faults that are active now for this call: sleeps, hangs, or returns the code of a
  // fault (0: no fault). A call that does not concern a card passes nullopt.
  int apply_faults(const Call& call, std::optional<std::size_t> card) const;
  bool is_lost(std::size_t card) const;
  // The uptime at which `card` is lost next; nullopt: never.
  std::optional<std::chrono::nanoseconds> next_loss(std::size_t card) const;

  // All processes on the card, including strangers, except those that are hidden.
  std::vector<Process> processes_on(std::size_t card) const;
  MemoryUse memory_of(const Unit& unit) const;
  unsigned utilization_of(std::size_t card) const;  // 0 to 100

  // The limits on the use of a unit by processes other than strangers.
  StateFile::Limits limits_of(const Unit& unit) const;
  bool has_stranger_computing(std::size_t card) const;

 private:
  std::uint64_t stranger_memory(const Unit& unit) const;
  Bytes capacity_of(const Unit& unit) const;

  Server server_;
  StateFile& state_;
};

}  // namespace berth::sim
