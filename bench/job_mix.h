// The jobs of a simulated server: who wants what, when, and for how long. The same for a seed.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "schedule/plan.h"

namespace berth {

enum class JobKind : std::uint8_t { shared, exclusive, several };  // several: more than one GPU

struct SimulatedJob {
  QueuedTicket ticket;
  JobKind kind = JobKind::shared;
  std::size_t user = 0;
  TimePoint arrival;
  std::chrono::nanoseconds run_time{};  // what it really takes, whatever it declares
};

struct JobMix {
  std::size_t gpus = 1000;
  Bytes card = gib(80);
  std::size_t jobs = 100'000;
  std::size_t users = 60;
  std::uint64_t seed = 1;
  double load =
      1.0;  // work that arrives, as a part of what the GPUs can do; more by day than by night
  double declared = 0.5;  // so many of the users say how long their jobs run
  Policy policy = Policy::spread;
};

// In the order of their arrival. Only what `declared` and `policy` say changes with those two, so
// that waiting times can be compared.
std::vector<SimulatedJob> make_jobs(const JobMix& mix);

}  // namespace berth
