// Simulates a large server with the real scheduler, and prints the results as JSON.
//
// - simulate waits: how long jobs wait under a policy, some with declared run times
// - simulate growth: how long a decision takes with a short and with a long queue
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "bench/simulation.h"
#include "cli/flags.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
using Json = nlohmann::ordered_json;

constexpr std::array kKinds{"shared", "exclusive", "several"};
const std::map<std::string, Policy> kPolicies{
    {"spread", Policy::spread}, {"pack", Policy::pack}, {"random", Policy::random}};

// The percentiles 0 to 100 of the waits, in seconds.
Json percentiles(std::vector<double> waits) {
  Json values = Json::array();
  if (waits.empty()) return values;
  std::sort(waits.begin(), waits.end());
  for (std::size_t p = 0; p <= 100; ++p) {
    values.push_back(std::round(waits[p * (waits.size() - 1) / 100]));
  }
  return values;
}

Json summary(const std::vector<double>& waits) {
  double sum = 0;
  for (const double wait : waits) sum += wait;
  return {{"jobs", waits.size()},
          {"mean_s", waits.empty() ? 0 : std::round(sum / static_cast<double>(waits.size()))},
          {"percentiles_s", percentiles(waits)}};
}

Json measure_waits(const JobMix& mix, const std::string& policy) {
  const auto begin = Clock::now();
  const std::vector<SimulatedJob> jobs = make_jobs(mix);
  Simulation simulation(jobs, mix.gpus, mix.card, mix.seed);
  simulation.run();
  const auto& run = simulation.result();
  std::vector<double> all;
  std::array<std::vector<double>, kKinds.size()> by_kind;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const double wait = Seconds(run.waits[i]).count();
    all.push_back(wait);
    by_kind.at(static_cast<std::size_t>(jobs[i].kind)).push_back(wait);
  }
  Json wait{{"all", summary(all)}};
  for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
    wait[kKinds.at(kind)] = summary(by_kind.at(kind));
  }
  const double decision_time = Seconds(run.decision_time).count();
  return {{"policy", policy},
          {"declared", mix.declared},
          {"gpus", mix.gpus},
          {"jobs", mix.jobs},
          {"users", mix.users},
          {"load", mix.load},
          {"seed", mix.seed},
          {"waits", wait},
          {"gpus_held", run.gpus_held},
          {"gpus_used", run.gpus_used},
          {"longest_queue", run.longest_queue},
          {"decisions", run.decisions},
          {"tickets_per_decision",
           static_cast<double>(run.tickets_examined) / static_cast<double>(run.decisions)},
          {"seconds", Seconds(Clock::now() - begin).count()},
          {"deciding_s", decision_time},
          {"decisions_per_s", static_cast<double>(run.decisions) / decision_time}};
}

double time_ms(const Simulation& simulation, std::size_t length, std::size_t& tickets_examined) {
  const auto begin = cpu_time();
  tickets_examined = simulation.decide_without_starting(length);
  return 1000 * Seconds(cpu_time() - begin).count();
}

// Measures decisions with queues of several lengths, in one of two states of the server. The leases
// are the same for every length.
// - full: every GPU is held exclusively, so that no ticket can be granted
// - gaps: the first ticket must wait, and shared GPUs have room that no ticket behind it may
//   take, so that the decision walks to the end of the queue
Json measure_growth(const JobMix& mix, const std::vector<std::size_t>& lengths, int rounds,
                    bool gaps) {
  JobMix queued = mix;
  queued.jobs = mix.gpus * 5 + lengths.back();
  std::vector<SimulatedJob> jobs = make_jobs(queued);
  if (!gaps) {
    for (std::size_t i = 0; i < mix.gpus; ++i) jobs[i].ticket.request = Request{};
  }
  Simulation simulation(jobs, mix.gpus, mix.card, mix.seed);
  for (std::size_t i = 0; i < jobs.size(); ++i) simulation.enqueue(i);
  while (simulation.decide_first()) {
  }
  if (simulation.queued() < lengths.back())
    throw std::runtime_error("too few jobs wait for the longest of --lengths");
  Json measured = Json::array();
  for (const std::size_t length : lengths) {
    measured.push_back({{"queued", length}, {"looked_at", 0}, {"ms", Json::array()}});
  }
  for (int round = 0; round < rounds; ++round) {
    for (Json& one : measured) {
      std::size_t tickets_examined = 0;
      one["ms"].push_back(time_ms(simulation, one["queued"], tickets_examined));
      one["looked_at"] = tickets_examined;
    }
  }
  return measured;
}

// Stores a positive number.
template <class Number>
Flags::ValueParser store_number(Number& target) {
  return [&target](std::string_view text) -> Result<void> {
    Number number{};
    const auto [end, problem] = std::from_chars(text.begin(), text.end(), number);
    if (problem != std::errc() || end != text.end() || number < Number{})
      return fail(ErrorKind::usage, "not a number");
    target = number;
    return {};
  };
}

int simulate(std::span<const char* const> words) {
  JobMix mix;
  std::string measure;
  std::string policy = "spread";
  std::vector<std::size_t> lengths;
  int rounds = 7;
  Flags flags;
  flags.add_choice("MEASURE", "waits|growth",
                   "How long jobs wait, or the time of a decision by the length of the queue",
                   measure);
  flags.require();
  flags.add_value("--gpus", "N", "Number of GPUs, all equal", store_number(mix.gpus));
  flags.add_value("--seed", "N", "Seed of the jobs and of the random policy",
                  store_number(mix.seed));
  flags.set_group("waits");
  flags.add_value("--jobs", "N", "Number of jobs", store_number(mix.jobs));
  flags.add_value("--users", "N", "Number of users", store_number(mix.users));
  flags.add_value("--load", "X", "Work that arrives, as a fraction of the capacity of the GPUs",
                  store_number(mix.load));
  flags.add_value("--declared", "X", "Fraction of the users that declare run times",
                  store_number(mix.declared));
  flags.add_choice("--policy", "spread|pack|random", "Policy that chooses GPUs", policy);
  flags.set_group("growth");
  flags.add_repeated_value(
      "--length", "N", "Length of the queue, repeatable, the longest last",
      [&](std::string_view text) { return store_number(lengths.emplace_back())(text); });
  flags.add_value("--rounds", "N", "Rounds for each length", store_number(rounds));
  flags.set_usage("simulate");
  const auto asked = flags.parse(words);
  if (!asked) throw std::runtime_error(asked.error().message);
  if (*asked == Flags::Asked::help) {
    std::fputs(
        flags.format_help("Simulates a large server with the real scheduler; prints JSON").c_str(),
        stdout);
    return 0;
  }
  if (lengths.empty()) lengths = {10'000, 100'000};
  mix.policy = kPolicies.at(policy);
  const Json result = measure == "waits"
                          ? measure_waits(mix, policy)
                          : Json{{"full", measure_growth(mix, lengths, rounds, false)},
                                 {"gaps", measure_growth(mix, lengths, rounds, true)}};
  std::printf("%s\n", result.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace berth

int main(int argc, char** argv) {
  try {
    return berth::simulate(std::span<const char* const>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "simulate: %s\n", error.what());
    return 1;
  }
}
