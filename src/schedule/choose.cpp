// Chooses GPUs by policy and connections; see choose.h.
#include "schedule/choose.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <tuple>

namespace berth::schedule {
namespace {

// With more sets than this, find_greedy_combination() is used instead of comparing all of them.
constexpr std::size_t kMaxSets = 20'000;

void order_by_policy(const std::vector<GpuOccupancy>& occupancies,
                     std::vector<std::size_t>& candidates, Policy policy, std::uint64_t seed) {
  if (policy == Policy::random) {
    std::mt19937_64 random(seed);
    std::shuffle(candidates.begin(), candidates.end(), random);
    return;
  }
  const double direction = policy == Policy::pack ? -1 : 1;
  const auto rank = [&](std::size_t i) {
    return std::tuple(occupancies[i].gpu->display, direction * memory_load(occupancies[i]), i);
  };
  std::sort(candidates.begin(), candidates.end(),
            [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
}

std::size_t count_combinations(std::size_t n, std::size_t k) {
  std::size_t sets = 1;
  for (std::size_t i = 1; i <= k && sets <= kMaxSets; ++i) sets = sets * (n - k + i) / i;
  return sets;
}

std::uint64_t sum_closeness(const Closeness& closeness, const std::vector<std::size_t>& set) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < set.size(); ++i) {
    for (std::size_t j = i + 1; j < set.size(); ++j) sum += closeness[set[i]][set[j]];
  }
  return sum;
}

// Compares all sets, in the order that the policy prefers; returns the first of the best ones.
std::vector<std::size_t> find_best_combination(const std::vector<std::size_t>& ordered,
                                               std::size_t count, const Closeness& closeness) {
  std::vector<std::size_t> picks(count);
  std::iota(picks.begin(), picks.end(), 0);
  std::vector<std::size_t> best;
  std::uint64_t best_sum = 0;
  for (;;) {
    std::vector<std::size_t> set;
    set.reserve(count);
    for (const std::size_t pick : picks) set.push_back(ordered[pick]);
    const std::uint64_t sum = sum_closeness(closeness, set);
    if (best.empty() || sum > best_sum) {
      best = std::move(set);
      best_sum = sum;
    }
    // The next combination: advance the last pick that is not at its end.
    std::size_t i = count;
    while (i > 0 && picks[i - 1] == ordered.size() - count + (i - 1)) --i;
    if (i == 0) return best;
    ++picks[i - 1];
    for (std::size_t j = i; j < count; ++j) picks[j] = picks[j - 1] + 1;
  }
}

// Builds one set for each first GPU, by adding the GPU that is best connected to the set so far;
// returns the best of these sets.
std::vector<std::size_t> find_greedy_combination(const std::vector<std::size_t>& ordered,
                                                 std::size_t count, const Closeness& closeness) {
  std::vector<std::size_t> best;
  std::uint64_t best_sum = 0;
  for (const std::size_t start : ordered) {
    std::vector<std::size_t> set{start};
    while (set.size() < count) {
      std::optional<std::size_t> next;
      std::uint64_t next_sum = 0;
      for (const std::size_t candidate : ordered) {
        if (std::find(set.begin(), set.end(), candidate) != set.end()) continue;
        std::uint64_t sum = 0;
        for (const std::size_t member : set) sum += closeness[member][candidate];
        if (!next || sum > next_sum) {
          next = candidate;
          next_sum = sum;
        }
      }
      set.push_back(*next);
    }
    const std::uint64_t sum = sum_closeness(closeness, set);
    if (best.empty() || sum > best_sum) {
      best = std::move(set);
      best_sum = sum;
    }
  }
  return best;
}

}  // namespace

std::vector<std::size_t> choose_gpus(const std::vector<GpuOccupancy>& occupancies,
                                     std::vector<std::size_t> candidates, std::size_t count,
                                     Policy policy, const Closeness& closeness,
                                     std::uint64_t seed) {
  order_by_policy(occupancies, candidates, policy, seed);
  std::vector<std::size_t> chosen;
  if (count == 1 || closeness.empty() || candidates.size() == count) {
    chosen.assign(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count));
  } else if (count_combinations(candidates.size(), count) <= kMaxSets) {
    chosen = find_best_combination(candidates, count, closeness);
  } else {
    chosen = find_greedy_combination(candidates, count, closeness);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace berth::schedule
