// A simulated server at work: its description, what the processes on it use, and its faults.
//
// Both stand-ins ask here, so that NVML and CUDA always tell the same story.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/calls.h"
#include "sim/server.h"
#include "sim/state.h"

namespace berth::sim {

// One process on one unit, as a driver lists it.
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
  std::uint64_t used = 0;  // without what is reserved
  std::uint64_t free() const { return total - reserved - used; }
};

// The two variables that say which server is simulated, and where its state is.
struct ServerSource {
  std::string sim;    // BERTH_SIM; empty: no driver is there
  std::string state;  // the path of the state file: the identity of the server
  static ServerSource from_environment();
  bool operator==(const ServerSource&) const = default;
};

class Machine {
 public:
  Machine(Server server, StateFile& state) : server_(std::move(server)), state_(state) {}

  // The server that the source names. The error is one line for the user: usage for what BERTH_SIM
  // says, harbour for the state file.
  static Result<Machine> load(const ServerSource& source);

  const Server& server() const { return server_; }
  const Card& card(std::size_t index) const { return server_.cards[index]; }
  StateFile& state() const { return state_; }
  std::chrono::nanoseconds uptime() const { return state_.uptime(); }

  // Takes part in what goes wrong: sleeps, hangs, or returns the code of a fault that concerns this
  // call now (0: none). A call on no card in particular passes nullopt.
  int apply_faults(const Call& call, std::optional<std::size_t> card) const;
  bool is_lost(std::size_t card) const;
  // When `card` is next lost, as uptime; nothing if never.
  std::optional<std::chrono::nanoseconds> next_loss(std::size_t card) const;

  // All processes on the card that a list shows, strangers included.
  std::vector<Process> processes_on(std::size_t card) const;
  MemoryUse memory_of(const Unit& unit) const;
  unsigned utilization_of(std::size_t card) const;  // 0 to 100

  // What processes other than strangers may use of a unit now.
  StateFile::Limits limits_of(const Unit& unit) const;
  bool has_stranger_computing(std::size_t card) const;

 private:
  std::uint64_t stranger_memory(const Unit& unit) const;
  Bytes capacity_of(const Unit& unit) const;

  Server server_;
  StateFile& state_;
};

}  // namespace berth::sim
