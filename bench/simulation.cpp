// Simulates arrivals, ends and decisions, and checks the accounts; see simulation.h.
#include "bench/simulation.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <set>
#include <utility>

namespace berth {
namespace {

// A broken invariant is a fault of the scheduler, and makes all results of this run worthless.
void require(bool holds, const char* invariant, const std::string& job) {
  if (holds) return;
  std::fprintf(stderr, "simulate: invariant violated: %s (%s)\n", invariant, job.c_str());
  std::abort();
}

// The fraction of the card that a lease takes.
double gpu_share(const std::optional<Bytes>& memory, Bytes card) {
  return memory ? static_cast<double>(memory->count) / static_cast<double>(card.count) : 1;
}

}  // namespace

std::chrono::nanoseconds cpu_time() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

Simulation::Simulation(const std::vector<SimulatedJob>& jobs, std::size_t gpus, Bytes card,
                       std::uint64_t seed)
    : jobs_(jobs), lease_position_(jobs.size()), accounts_(gpus) {
  input_.seed = seed;
  for (std::size_t i = 0; i < gpus; ++i) {
    GpuCondition gpu;
    // As long as real UUIDs, since decisions compare and copy them.
    std::array<char, 48> uuid{};
    std::snprintf(uuid.data(), uuid.size(), "GPU-%08zx-0000-4000-8000-%012zx",
                  i * 2654435761 % (1UL << 32), i);
    gpu.uuid = uuid.data();
    gpu.name = "NVIDIA A100-SXM4-80GB";
    gpu.memory = card;
    gpu.utilization_pct = gpu.memory_utilization_pct = 0;
    gpu_position_[gpu.uuid] = i;
    input_.gpus.push_back(std::move(gpu));
  }
  result_.waits.resize(jobs.size());
}

void Simulation::run() {
  std::size_t next = 0;
  while (next < jobs_.size() || !ends_.empty()) {
    const bool arrival =
        next < jobs_.size() && (ends_.empty() || jobs_[next].arrival < ends_.top().time);
    if (arrival) {
      advance(jobs_[next].arrival);
      add_arrival(next++);
    } else {
      const JobEnd ended = ends_.top();
      ends_.pop();
      advance(ended.time);
      end_job(ended.job);
    }
  }
  require(queue_.empty() && input_.leases.empty(), "every job ends", "after the last event");
  const double span =
      std::chrono::duration<double>(jobs_.back().arrival - jobs_.front().arrival).count() *
      static_cast<double>(accounts_.size());
  result_.gpus_held /= span;
  result_.gpus_used /= span;
}

void Simulation::advance(TimePoint now) {
  // After the last arrival the server becomes empty, which says nothing about a policy.
  const TimePoint until = std::min(now, jobs_.back().arrival);
  const double seconds = std::chrono::duration<double>(until - std::min(input_.now, until)).count();
  result_.gpus_held += seconds * static_cast<double>(held_);
  result_.gpus_used += seconds * used_;
  input_.now = now;
}

// The new job decides about the queue before it, and then starts, or joins the end of the queue.
void Simulation::add_arrival(std::size_t job) {
  const auto begin = cpu_time();
  const QueueDecision decision = decide_queue(queue_.size(), &job);
  result_.decision_time += cpu_time() - begin;
  queue_.push_back(job);
  apply_decision(decision);
}

void Simulation::end_job(std::size_t job) {
  const std::size_t position = lease_position_[job];
  HeldLease& lease = input_.leases[position];
  for (const std::string& uuid : lease.uuids) {
    GpuAccount& account = gpu_account(uuid);
    used_ -= gpu_share(lease.memory, *input_.gpus[0].memory);
    account.exclusive = false;
    account.reserved.count -= lease.memory.value_or(Bytes{}).count;
    if (--account.leases == 0) --held_;
  }
  lease_position_[running_job_.back()] = position;
  running_job_[position] = running_job_.back();
  running_job_.pop_back();
  std::swap(lease, input_.leases.back());
  input_.leases.pop_back();
  if (!queue_.empty()) decide_first();
}

bool Simulation::decide_first() {
  const auto begin = cpu_time();
  const QueueDecision decision = decide_queue(queue_.size(), nullptr);
  result_.decision_time += cpu_time() - begin;
  apply_decision(decision);
  return !decision.granted.empty();
}

std::size_t Simulation::decide_without_starting(std::size_t length) const {
  return decide_queue(std::min(length, queue_.size()), nullptr).tickets_examined;
}

// Walks the queue as src/lease/queue_walk.cpp does, for the newcomer, or else for the first ticket.
Simulation::QueueDecision Simulation::decide_queue(std::size_t length,
                                                   const std::size_t* newcomer) const {
  using Explain = Planner::Explain;
  constexpr std::size_t kMinExamined = 2;
  QueueDecision decision;
  Planner planner(input_);
  std::vector<bool> awaited_by_earlier(accounts_.size());  // GPUs that an earlier ticket waits for
  std::size_t not_awaited = accounts_.size();
  const auto decide = [&](std::size_t job, Explain explain) {
    Outcome outcome = planner.decide(jobs_[job].ticket, explain);
    if (outcome.grant) decision.granted.push_back({job, std::move(outcome.grant->uuids)});
    ++decision.tickets_examined;
    return outcome;
  };
  for (std::size_t i = 0; i < length; ++i) {
    const bool cut = i >= (newcomer == nullptr ? 1 : kMinExamined) && planner.is_exhausted();
    if (cut) {  // the newcomer waits, and gets the reasons
      if (newcomer != nullptr) decide(*newcomer, Explain::yes);
      return decision;
    }
    const bool collect_blockers = newcomer != nullptr && not_awaited > 0;
    const bool is_first = newcomer == nullptr && i == 0;
    const Outcome outcome =
        decide(queue_[i], collect_blockers || is_first ? Explain::yes : Explain::no);
    if (!collect_blockers || !outcome.wait) continue;
    for (const Blocker& blocker : outcome.wait->blockers) {
      const std::size_t gpu = gpu_position_.at(blocker.uuid);
      if (!awaited_by_earlier[gpu]) --not_awaited;
      awaited_by_earlier[gpu] = true;
    }
  }
  if (newcomer != nullptr) decide(*newcomer, Explain::yes);
  return decision;
}

void Simulation::apply_decision(const QueueDecision& decision) {
  ++result_.decisions;
  result_.tickets_examined += decision.tickets_examined;
  result_.longest_queue = std::max(result_.longest_queue, queue_.size());
  if (decision.granted.empty()) return;
  for (const GrantedJob& granted : decision.granted) start(granted);
  // Grants come in the order of the queue.
  auto next = decision.granted.begin();
  std::erase_if(queue_, [&](std::size_t job) {
    if (next == decision.granted.end() || next->job != job) return false;
    ++next;
    return true;
  });
  require(next == decision.granted.end(), "only waiting jobs start", "in a grant");
}

void Simulation::start(const GrantedJob& granted) {
  const SimulatedJob& job = jobs_[granted.job];
  const std::string& id = job.ticket.id;
  const Request& request = job.ticket.request;
  const std::set<std::string> distinct(granted.uuids.begin(), granted.uuids.end());
  require(distinct.size() == request.count && granted.uuids.size() == request.count,
          "I8, all GPUs of a request are granted together", id);
  for (const std::string& uuid : granted.uuids) {
    GpuAccount& account = gpu_account(uuid);
    require(!account.exclusive && (request.memory || account.leases == 0),
            "I1, a GPU has at most one exclusive lease", id);
    account.exclusive = !request.memory;
    account.reserved.count += request.memory.value_or(Bytes{}).count;
    require(account.reserved <= *input_.gpus[0].memory, "I2, reserved memory fits in the GPU", id);
    if (account.leases++ == 0) ++held_;
    used_ += gpu_share(request.memory, *input_.gpus[0].memory);
  }
  lease_position_[granted.job] = input_.leases.size();
  running_job_.push_back(granted.job);
  std::optional<TimePoint> ends;
  if (request.time) ends = input_.now + *request.time;
  input_.leases.push_back({id, granted.uuids, request.memory, {}, ends});
  ends_.push({input_.now + job.run_time, granted.job});
  result_.waits[granted.job] = input_.now - job.arrival;
}

Simulation::GpuAccount& Simulation::gpu_account(const std::string& uuid) {
  return accounts_[gpu_position_.at(uuid)];
}

}  // namespace berth
