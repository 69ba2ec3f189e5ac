// Simulates a server with the real scheduler: jobs arrive and end, and each of these events causes
// one decision, as in src/lease.
//
// There is no driver, harbour or process, so that only the decision is measured. The simulation
// keeps its own accounts to check the invariants I1, I2 and I8 of docs/testing.md, and aborts if
// one is broken.
#pragma once

#include <chrono>
#include <cstdint>
#include <queue>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "bench/job_mix.h"
#include "schedule/plan.h"

namespace berth {

// The CPU time of this process. Used instead of wall time, since other processes may use the
// machine, and a decision never waits.
std::chrono::nanoseconds cpu_time();

class Simulation {
 public:
  // An idle server with an empty queue. `jobs` must outlive the simulation.
  Simulation(const std::vector<SimulatedJob>& jobs, std::size_t gpus, Bytes card,
             std::uint64_t seed);

  // Simulates all arrivals, until the last job ends.
  void run();

  // Appends the job to the queue, without a decision.
  void enqueue(std::size_t job) { queue_.push_back(job); }

  // One decision by the first ticket of the queue, as after the end of a lease. Starts the jobs
  // that are granted; false if there are none.
  bool decide_first();

  // The same for the first `length` tickets of the queue, to measure its time: starts no job.
  // Returns the number of tickets that were examined.
  std::size_t decide_without_starting(std::size_t length) const;

  struct SimulationResult {
    std::vector<std::chrono::nanoseconds> waits;  // of each job
    std::size_t decisions = 0;
    std::size_t tickets_examined = 0;  // in all decisions
    std::size_t longest_queue = 0;
    std::chrono::nanoseconds decision_time{};  // CPU time
    double gpus_held = 0;  // fraction of the GPU hours until the last arrival with a lease
    double gpus_used = 0;  // the same; a shared GPU counts by its reserved fraction
  };
  const SimulationResult& result() const { return result_; }
  std::size_t queued() const { return queue_.size(); }
  std::size_t leases() const { return input_.leases.size(); }

 private:
  struct GrantedJob {
    std::size_t job;
    std::vector<std::string> uuids;
  };
  struct QueueDecision {
    std::vector<GrantedJob> granted;
    std::size_t tickets_examined = 0;
  };
  // What the jobs hold on a GPU, counted independently of the scheduler.
  struct GpuAccount {
    std::size_t leases = 0;
    bool exclusive = false;
    Bytes reserved;
  };
  struct JobEnd {
    TimePoint time;
    std::size_t job;
    bool operator>(const JobEnd& other) const {
      return std::tie(time, job) > std::tie(other.time, other.job);
    }
  };

  void add_arrival(std::size_t job);
  void end_job(std::size_t job);
  QueueDecision decide_queue(std::size_t length, const std::size_t* newcomer) const;
  void apply_decision(const QueueDecision& decision);
  void start(const GrantedJob& granted);
  void advance(TimePoint now);
  GpuAccount& gpu_account(const std::string& uuid);

  const std::vector<SimulatedJob>& jobs_;
  PlanInput input_;  // with the current leases; without tickets, as in src/lease
  std::vector<std::size_t> queue_;
  std::vector<std::size_t> lease_position_;  // of each running job, its index in input_.leases
  std::vector<std::size_t> running_job_;     // and the inverse
  std::vector<GpuAccount> accounts_;
  std::unordered_map<std::string, std::size_t> gpu_position_;  // of each UUID
  std::priority_queue<JobEnd, std::vector<JobEnd>, std::greater<>> ends_;
  std::size_t held_ = 0;  // GPUs with a lease
  double used_ = 0;       // the same; a shared GPU counts by its reserved fraction
  SimulationResult result_;
};

}  // namespace berth
