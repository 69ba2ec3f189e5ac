// A server played forward with the real scheduler: jobs arrive and end, and at each of these events
// one decision is taken as the broker takes it.
//
// The driver, the harbour and the processes are left out: what is measured is the decision alone.
// I1, I2 and I8 of the design are checked by accounts of its own; where one is broken, it aborts.
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

// What this process has had of a processor. Others may use the machine meanwhile, and a decision
// waits for nothing.
std::chrono::nanoseconds cpu_time();

class Simulation {
 public:
  // An idle server. `jobs` must outlive this; none of them is known to it yet.
  Simulation(const std::vector<SimulatedJob>& jobs, std::size_t gpus, Bytes card,
             std::uint64_t seed);

  // To the end of the last job, all of which arrive in their time.
  void run();

  // Puts the job at the end of the queue, and decides nothing.
  void enqueue(std::size_t job) { queue_.push_back(job); }

  // One decision by the first of the queue, as after the end of a lease. Whoever is granted starts.
  // Whether anybody was.
  bool decide_first();

  // The same for the first `length` tickets of the queue, and nobody starts: only its time counts.
  // How many tickets were looked at.
  std::size_t decide_without_starting(std::size_t length) const;

  struct SimulationResult {
    std::vector<std::chrono::nanoseconds> waits;  // of each job
    std::size_t decisions = 0;
    std::size_t tickets_examined = 0;  // tickets, in all decisions
    std::size_t longest_queue = 0;
    std::chrono::nanoseconds decision_time{};  // processor time
    double gpus_held = 0;  // of the GPU hours until the last arrival, with a lease on them
    double gpus_used = 0;  // the same, where a shared one counts for as much as is reserved of it
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
  // What is on a GPU, by our own count.
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
  PlanInput input_;  // with the leases as they are; the tickets stay empty, as in the broker
  std::vector<std::size_t> queue_;
  std::vector<std::size_t> lease_position_;  // of each job that runs, its position among the leases
  std::vector<std::size_t> running_job_;     // and back
  std::vector<GpuAccount> accounts_;
  std::unordered_map<std::string, std::size_t> gpu_position_;  // of each UUID
  std::priority_queue<JobEnd, std::vector<JobEnd>, std::greater<>> ends_;
  std::size_t held_ = 0;  // GPUs with a lease
  double used_ = 0;       // GPUs, where a shared one counts for what is reserved
  SimulationResult result_;
};

}  // namespace berth
