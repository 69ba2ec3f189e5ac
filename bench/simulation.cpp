// The events, the decisions and the accounts; see simulation.h.
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

// A broken promise is a fault of the scheduler, and no figure of this run is worth anything.
void require(bool kept, const char* invariant, const std::string& job) {
  if (kept) return;
  std::fprintf(stderr, "simulate: %s is broken by %s\n", invariant, job.c_str());
  std::abort();
}

// The part of the card that a lease takes.
double part(const std::optional<Bytes>& memory, Bytes card) {
  return memory ? static_cast<double>(memory->count) / static_cast<double>(card.count) : 1;
}

}  // namespace

std::chrono::nanoseconds processor_time() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

Simulation::Simulation(const std::vector<Job>& jobs, std::size_t gpus, Bytes card,
                       std::uint64_t seed)
    : jobs_(jobs), lease_of_(jobs.size()), accounts_(gpus) {
  input_.seed = seed;
  for (std::size_t i = 0; i < gpus; ++i) {
    GpuCondition gpu;
    // As long as real ones: to compare and copy them is part of a decision.
    std::array<char, 48> uuid{};
    std::snprintf(uuid.data(), uuid.size(), "GPU-%08zx-0000-4000-8000-%012zx",
                  i * 2654435761 % (1UL << 32), i);
    gpu.uuid = uuid.data();
    gpu.name = "NVIDIA A100-SXM4-80GB";
    gpu.memory = card;
    gpu.utilization_pct = gpu.memory_utilization_pct = 0;
    position_of_[gpu.uuid] = i;
    input_.gpus.push_back(std::move(gpu));
  }
  run_.waits.resize(jobs.size());
}

void Simulation::run() {
  std::size_t next = 0;
  while (next < jobs_.size() || !ends_.empty()) {
    const bool arrival =
        next < jobs_.size() && (ends_.empty() || jobs_[next].arrives < ends_.top().time);
    if (arrival) {
      advance(jobs_[next].arrives);
      arrive(next++);
    } else {
      const End ended = ends_.top();
      ends_.pop();
      advance(ended.time);
      end(ended.job);
    }
  }
  require(queue_.empty() && input_.leases.empty(), "that every job ends", "the last event");
  const double span =
      std::chrono::duration<double>(jobs_.back().arrives - jobs_.front().arrives).count() *
      static_cast<double>(accounts_.size());
  run_.gpus_held /= span;
  run_.gpus_used /= span;
}

void Simulation::advance(TimePoint now) {
  // Behind the last arrival the server runs empty, which says nothing about a policy.
  const TimePoint until = std::min(now, jobs_.back().arrives);
  const double seconds = std::chrono::duration<double>(until - std::min(input_.now, until)).count();
  run_.gpus_held += seconds * static_cast<double>(held_);
  run_.gpus_used += seconds * used_;
  input_.now = now;
}

// The newcomer looks at the queue before it, and takes its place at the end or starts.
void Simulation::arrive(std::size_t job) {
  const auto begin = processor_time();
  const Walked walked = walk(queue_.size(), &job);
  run_.deciding += processor_time() - begin;
  queue_.push_back(job);
  take(walked);
}

void Simulation::end(std::size_t job) {
  const std::size_t position = lease_of_[job];
  HeldLease& lease = input_.leases[position];
  for (const std::string& uuid : lease.uuids) {
    Account& account = account_of(uuid);
    used_ -= part(lease.memory, *input_.gpus[0].memory);
    account.exclusive = false;
    account.reserved.count -= lease.memory.value_or(Bytes{}).count;
    if (--account.leases == 0) --held_;
  }
  lease_of_[job_of_.back()] = position;
  job_of_[position] = job_of_.back();
  job_of_.pop_back();
  std::swap(lease, input_.leases.back());
  input_.leases.pop_back();
  if (!queue_.empty()) decide_first();
}

bool Simulation::decide_first() {
  const auto begin = processor_time();
  const Walked walked = walk(queue_.size(), nullptr);
  run_.deciding += processor_time() - begin;
  take(walked);
  return !walked.granted.empty();
}

std::size_t Simulation::only_decide(std::size_t length) const {
  return walk(std::min(length, queue_.size()), nullptr).looked_at;
}

// As in src/lease/decision.cpp. The applicant is the newcomer, or else the first of the queue.
Simulation::Walked Simulation::walk(std::size_t length, const std::size_t* newcomer) const {
  using Explain = Planner::Explain;
  constexpr std::size_t kFront = 2;
  Walked walked;
  Planner planner(input_);
  std::vector<bool> looked_after(accounts_.size());  // an earlier ticket waits for it
  std::size_t not_looked_after = accounts_.size();
  const auto decide = [&](std::size_t job, Explain explain) {
    Outcome outcome = planner.decide(jobs_[job].ticket, explain);
    if (outcome.grant) walked.granted.push_back({job, std::move(outcome.grant->uuids)});
    ++walked.looked_at;
    return outcome;
  };
  for (std::size_t i = 0; i < length; ++i) {
    const bool cut = i >= (newcomer == nullptr ? 1 : kFront) && planner.exhausted();
    if (cut) {  // and so the newcomer waits, and is told why
      if (newcomer != nullptr) decide(*newcomer, Explain::yes);
      return walked;
    }
    const bool before = newcomer != nullptr && not_looked_after > 0;
    const bool mine = newcomer == nullptr && i == 0;
    const Outcome outcome = decide(queue_[i], before || mine ? Explain::yes : Explain::no);
    if (!before || !outcome.wait) continue;
    for (const Blocker& obstacle : outcome.wait->obstacles) {
      const std::size_t gpu = position_of_.at(obstacle.uuid);
      if (!looked_after[gpu]) --not_looked_after;
      looked_after[gpu] = true;
    }
  }
  if (newcomer != nullptr) decide(*newcomer, Explain::yes);
  return walked;
}

void Simulation::take(const Walked& walked) {
  ++run_.decisions;
  run_.looked_at += walked.looked_at;
  run_.longest_queue = std::max(run_.longest_queue, queue_.size());
  if (walked.granted.empty()) return;
  for (const Granted& granted : walked.granted) start(granted);
  // Grants come in the order of the queue.
  auto next = walked.granted.begin();
  std::erase_if(queue_, [&](std::size_t job) {
    if (next == walked.granted.end() || next->job != job) return false;
    ++next;
    return true;
  });
  require(next == walked.granted.end(), "that only waiting jobs start", "a grant");
}

void Simulation::start(const Granted& granted) {
  const Job& job = jobs_[granted.job];
  const std::string& id = job.ticket.id;
  const Request& request = job.ticket.request;
  const std::set<std::string> distinct(granted.uuids.begin(), granted.uuids.end());
  require(distinct.size() == request.count && granted.uuids.size() == request.count, "I8", id);
  for (const std::string& uuid : granted.uuids) {
    Account& account = account_of(uuid);
    require(!account.exclusive && (request.memory || account.leases == 0), "I1", id);
    account.exclusive = !request.memory;
    account.reserved.count += request.memory.value_or(Bytes{}).count;
    require(account.reserved <= *input_.gpus[0].memory, "I2", id);
    if (account.leases++ == 0) ++held_;
    used_ += part(request.memory, *input_.gpus[0].memory);
  }
  lease_of_[granted.job] = input_.leases.size();
  job_of_.push_back(granted.job);
  std::optional<TimePoint> ends;
  if (request.time) ends = input_.now + *request.time;
  input_.leases.push_back({id, granted.uuids, request.memory, {}, ends});
  ends_.push({input_.now + job.runs, granted.job});
  run_.waits[granted.job] = input_.now - job.arrives;
}

Simulation::Account& Simulation::account_of(const std::string& uuid) {
  return accounts_[position_of_.at(uuid)];
}

}  // namespace berth
