// Generates the jobs of a simulated server: users, requests, arrivals and run times. A seed always
// gives the same jobs.
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
  std::chrono::nanoseconds run_time{};  // the real one, not the declared one
};

struct JobMix {
  std::size_t gpus = 1000;
  Bytes card = gib(80);
  std::size_t jobs = 100'000;
  std::size_t users = 60;
  std::uint64_t seed = 1;
  double load = 1.0;      // arriving work, as a fraction of what the GPUs can do; more by day
  double declared = 0.5;  // fraction of the users who declare the run time of their jobs
  Policy policy = Policy::spread;
};

// The jobs in the order of arrival. `declared` and `policy` change only the declared times and the
// policy of the jobs, so that waiting times can be compared.
std::vector<SimulatedJob> make_jobs(const JobMix& mix);

}  // namespace berth
