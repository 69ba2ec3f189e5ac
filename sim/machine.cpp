// The present state of a simulated server; see machine.h.
#include "sim/machine.h"

#include <algorithm>
#include <csignal>
#include <fmt/format.h>
#include <thread>
#include <unistd.h>

#include "base/environment.h"
#include "base/simulation.h"

namespace berth::sim {
namespace {

// Behaves like a driver call that hangs in the kernel: only SIGKILL ends it.
[[noreturn]] void hang() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  for (;;) ::pause();
}

}  // namespace

ServerSource ServerSource::from_environment() {
  return {std::string(get_env_or_empty("BERTH_SIM")), simulated_state_path()};
}

Result<Machine> Machine::load(const ServerSource& source) {
  Server server = TRY(read_server(source.sim, source.state));
  StateFile* const state = TRY(StateFile::open(source.state));
  return Machine(std::move(server), *state);
}

int Machine::apply_faults(const Call& call, std::optional<std::size_t> card) const {
  if (server_.faults.empty()) return 0;
  const auto now = uptime();
  for (const Fault& fault : server_.faults) {
    if (fault.effect == Fault::Effect::lost || !names_call(fault.call, call.name)) continue;
    if (fault.card && fault.card != card) continue;
    if (!fault.window.contains(now)) continue;
    if (fault.effect == Fault::Effect::hang) hang();
    if (fault.effect == Fault::Effect::answer) return fault.answer;
    std::this_thread::sleep_for(fault.delay);
  }
  return 0;
}

bool Machine::is_lost(std::size_t card) const {
  return std::any_of(server_.faults.begin(), server_.faults.end(), [&](const Fault& fault) {
    return fault.effect == Fault::Effect::lost && fault.card == card &&
           fault.window.contains(uptime());
  });
}

std::optional<std::chrono::nanoseconds> Machine::next_loss(std::size_t card) const {
  std::optional<std::chrono::nanoseconds> next;
  const auto now = uptime();
  for (const Fault& fault : server_.faults) {
    if (fault.effect != Fault::Effect::lost || fault.card != card || fault.window.after <= now)
      continue;
    next = std::min(next.value_or(fault.window.after), fault.window.after);
  }
  return next;
}

std::vector<Process> Machine::processes_on(std::size_t card) const {
  std::vector<Process> processes;
  for (const ProcessUse& use : state_.uses_on(card)) {
    processes.push_back({static_cast<std::uint32_t>(use.pid), use.unit, use.memory,
                         ProcessKind::compute, use.utilization});
  }
  const auto now = uptime();
  for (const Stranger& stranger : server_.strangers) {
    if (stranger.unit.card != card || stranger.hidden || !stranger.window.contains(now)) continue;
    const auto memory = stranger.memory ? std::optional(stranger.memory->count) : std::nullopt;
    processes.push_back({stranger.pid, stranger.unit, memory, stranger.kind, stranger.utilization});
  }
  return processes;
}

Bytes Machine::capacity_of(const Unit& unit) const {
  const Card& on = card(unit.card);
  return unit.instance ? on.instances[*unit.instance]->memory : on.memory;
}

std::uint64_t Machine::stranger_memory(const Unit& unit) const {
  std::uint64_t sum = 0;
  const auto now = uptime();
  for (const Stranger& stranger : server_.strangers) {
    const bool here = unit.instance ? stranger.unit == unit : stranger.unit.card == unit.card;
    if (here && stranger.memory && stranger.window.contains(now)) sum += stranger.memory->count;
  }
  return sum;
}

MemoryUse Machine::memory_of(const Unit& unit) const {
  MemoryUse memory;
  memory.total = capacity_of(unit).count;
  // The card's reserved memory is not part of its instances.
  memory.reserved = unit.instance ? 0 : card(unit.card).reserved_memory.count;
  memory.used = stranger_memory(unit);
  for (const ProcessUse& use : state_.uses_on(unit.card)) {
    if (!unit.instance || use.unit == unit) memory.used += use.memory;
  }
  // The description may give strangers more memory together than the unit has.
  memory.used = std::min(memory.used, memory.total - memory.reserved);
  return memory;
}

unsigned Machine::utilization_of(std::size_t index) const {
  unsigned sum = 0;
  const auto now = uptime();
  for (const ProcessUse& use : state_.uses_on(index)) sum += use.utilization;
  for (const Stranger& stranger : server_.strangers) {
    if (stranger.unit.card == index && stranger.window.contains(now)) sum += stranger.utilization;
  }
  return std::min(sum, 100U);
}

StateFile::Limits Machine::limits_of(const Unit& unit) const {
  StateFile::Limits limits;
  const std::uint64_t taken =
      stranger_memory(unit) + (unit.instance ? 0 : card(unit.card).reserved_memory.count);
  const std::uint64_t capacity = capacity_of(unit).count;
  limits.memory = capacity > taken ? capacity - taken : 0;
  return limits;
}

bool Machine::has_stranger_computing(std::size_t index) const {
  const auto now = uptime();
  return std::any_of(
      server_.strangers.begin(), server_.strangers.end(), [&](const Stranger& stranger) {
        return stranger.unit.card == index && stranger.kind != ProcessKind::graphics &&
               stranger.window.contains(now);
      });
}

}  // namespace berth::sim
