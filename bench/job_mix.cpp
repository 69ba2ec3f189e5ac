// Draws the jobs of a simulated server at random; see job_mix.h.
#include "bench/job_mix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <random>
#include <string>

namespace berth {
namespace {

using Hours = std::chrono::duration<double, std::ratio<3600>>;
using Random = std::mt19937_64;

constexpr double kDailyVariation =
    0.3;  // how much more work arrives at noon than on average, as a fraction

// Lognormal, as run times and memory of real jobs are: many small ones, few huge ones.
struct LogNormal {
  double median;
  double sigma;

  double draw(Random& random) const {
    return std::lognormal_distribution<double>(std::log(median), sigma)(random);
  }
};

constexpr LogNormal kSharedGib{10, 0.8};

constexpr LogNormal run_hours(JobKind kind) {
  switch (kind) {
    case JobKind::shared:
      return {0.4, 1.1};
    case JobKind::exclusive:
      return {0.8, 1.2};
    case JobKind::several:
      return {1.2, 1.0};
  }
  return {};
}

// Users have habits: four of five jobs of a user are of one kind.
struct SimulatedUser {
  JobKind usual_kind;
  double declaration_rank;  // declares run times if JobMix::declared is above this
};

JobKind random_kind(Random& random) {
  constexpr std::array kShares{0.5, 0.42, 0.08};
  return static_cast<JobKind>(
      std::discrete_distribution<int>(kShares.begin(), kShares.end())(random));
}

unsigned random_count(Random& random) {
  // 2 to 8, mostly powers of two.
  constexpr std::array kShares{0.0, 0.0, 0.4, 0.05, 0.3, 0.02, 0.03, 0.0, 0.2};
  return static_cast<unsigned>(
      std::discrete_distribution<int>(kShares.begin(), kShares.end())(random));
}

// Users round up to quarters of an hour, mostly with a large margin; one in twenty underestimates.
std::chrono::nanoseconds random_estimate(std::chrono::nanoseconds run_time, Random& random) {
  const bool underestimates = std::bernoulli_distribution(0.05)(random);
  const double factor = std::uniform_real_distribution<double>(1, 3)(random);
  const double quarters = std::ceil(4 * Hours(run_time).count() * (underestimates ? 0.5 : factor));
  return std::chrono::minutes(15) * static_cast<long>(quarters);
}

// GPU hours of a job. A shared GPU counts by the fraction of its memory that the job reserves.
double gpu_hours(const SimulatedJob& job, Bytes card) {
  const Request& request = job.ticket.request;
  const double share =
      request.memory ? static_cast<double>(request.memory->count) / static_cast<double>(card.count)
                     : 1;
  return share * request.count * Hours(job.run_time).count();
}

SimulatedJob random_job(const JobMix& mix, const std::vector<SimulatedUser>& users,
                        Random& random) {
  SimulatedJob job;
  job.user = std::uniform_int_distribution<std::size_t>(0, users.size() - 1)(random);
  const SimulatedUser& user = users[job.user];
  job.kind = std::bernoulli_distribution(0.8)(random) ? user.usual_kind : random_kind(random);
  Request& request = job.ticket.request;
  request.policy = mix.policy;
  if (job.kind == JobKind::shared) {
    const double max_gib = static_cast<double>(mix.card.count >> 30);
    const double size = std::clamp(std::ceil(kSharedGib.draw(random)), 1.0, max_gib);
    request.memory = gib(static_cast<std::uint64_t>(size));
  }
  if (job.kind == JobKind::several) {
    request.count = std::min(random_count(random), static_cast<unsigned>(mix.gpus));
  }
  const double hours = std::clamp(run_hours(job.kind).draw(random), 0.01, 48.0);
  job.run_time = std::chrono::duration_cast<std::chrono::nanoseconds>(Hours(hours));
  // Drawn even if it is not declared, so that `declared` does not change the random numbers.
  const auto estimate = random_estimate(job.run_time, random);
  if (user.declaration_rank < mix.declared) request.time = estimate;
  return job;
}

}  // namespace

std::vector<SimulatedJob> make_jobs(const JobMix& mix) {
  Random random(mix.seed);
  std::vector<SimulatedUser> users;
  for (std::size_t i = 0; i < mix.users; ++i) {
    users.push_back({random_kind(random), static_cast<double>(i) / static_cast<double>(mix.users)});
  }
  std::vector<SimulatedJob> jobs;
  jobs.reserve(mix.jobs);
  double work = 0;
  for (std::size_t i = 0; i < mix.jobs; ++i) {
    jobs.push_back(random_job(mix, users, random));
    jobs.back().ticket.id = "job " + std::to_string(i);
    work += gpu_hours(jobs.back(), mix.card);
  }
  const double span = work / (static_cast<double>(mix.gpus) * mix.load);
  const double mean_gap = span / static_cast<double>(mix.jobs);
  double hour = 6;  // the simulation begins in the morning, with an empty server
  for (SimulatedJob& job : jobs) {
    const double load_factor = 1 - kDailyVariation * std::cos(2 * std::numbers::pi * hour / 24);
    hour += std::exponential_distribution<double>(1)(random) * mean_gap / load_factor;
    job.arrival = TimePoint(std::chrono::duration_cast<std::chrono::nanoseconds>(Hours(hour)));
  }
  return jobs;
}

}  // namespace berth
