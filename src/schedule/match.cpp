// One GPU against one request; see match.h.
#include "schedule/match.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

namespace berth::schedule {
namespace {

bool contains_ignoring_case(const std::string& text, const std::string& part) {
  const auto same = [](unsigned char a, unsigned char b) {
    return std::tolower(a) == std::tolower(b);
  };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

bool exceeds(const std::optional<unsigned>& measured, const std::optional<unsigned>& limit) {
  return limit && (!measured || *measured > *limit);
}

std::uint64_t memory_in_use(const Place& place) {
  std::uint64_t sum = place.gpu->strangers_memory.count;
  for (const Holding& holding : place.holdings) {
    if (holding.memory) sum = capped_sum(sum, holding.memory->count);
  }
  return sum;
}

bool held_whole(const Place& place) {
  return std::any_of(place.holdings.begin(), place.holdings.end(),
                     [](const Holding& holding) { return !holding.memory; });
}

// Alone, a request may have the whole GPU; beside others, some room must remain for contexts.
bool fits(const GpuCondition& gpu, std::uint64_t used, Bytes memory) {
  if (!gpu.memory) return false;
  const std::uint64_t margin = used == 0 ? 0 : kContextMargin.count;
  const std::uint64_t total = gpu.memory->count;
  return capped_sum(used, margin) <= total && memory.count <= total - used - margin;
}

// What should have ended and has not may end at any moment, like what never said.
bool end_is_known(const Holding& holding, TimePoint now) {
  return holding.ends && *holding.ends > now;
}

// What the holdings may use together at `time`, by which of unknown end have left; nothing if there
// are too many ways to count.
std::optional<std::set<std::uint64_t>> possible_uses(const Place& place, TimePoint time,
                                                     TimePoint now) {
  constexpr std::size_t kMostWays = 4096;
  std::set<std::uint64_t> sums{0};
  for (const Holding& holding : place.holdings) {
    if (!holding.memory) continue;
    const bool known = end_is_known(holding, now);
    if (known && *holding.ends <= time) continue;
    std::set<std::uint64_t> next;
    for (const std::uint64_t sum : sums) {
      if (!known) next.insert(sum);
      next.insert(capped_sum(sum, holding.memory->count));
    }
    sums = std::move(next);
    if (sums.size() > kMostWays) return std::nullopt;
  }
  return sums;
}

// At one moment: is there a way in which the request fits without `added`, and not with it?
bool might_delay_at(const Place& place, Bytes added, Bytes wanted, TimePoint time, TimePoint now) {
  const auto sums = possible_uses(place, time, now);
  if (!sums) return true;
  const GpuCondition& gpu = *place.gpu;
  const std::uint64_t strangers = gpu.strangers_memory.count;
  for (const std::uint64_t sum : *sums) {
    // Strangers use anything up to what they use now: try both ends, and the most that still fits.
    const std::uint64_t most = gpu.memory->count > wanted.count + kContextMargin.count
                                   ? gpu.memory->count - wanted.count - kContextMargin.count
                                   : 0;
    const std::uint64_t with_strangers = capped_sum(sum, strangers);
    const std::array tried{sum, with_strangers, std::clamp(most, sum, with_strangers)};
    for (const std::uint64_t used : tried) {
      if (fits(gpu, used, wanted) && !fits(gpu, capped_sum(used, added.count), wanted)) return true;
    }
  }
  return false;
}

// What does not depend on who holds the GPU.
std::optional<Hindrance> own_hindrance(const GpuCondition& gpu, const Request& request) {
  if (!gpu.usable) return Hindrance::unusable;
  if (gpu.strangers > request.max_processes) return Hindrance::strangers;
  if (exceeds(gpu.utilization_pct, request.max_utilization_pct) ||
      exceeds(gpu.memory_utilization_pct, request.max_memory_utilization_pct)) {
    return Hindrance::busy;
  }
  return std::nullopt;
}

}  // namespace

bool matches(const GpuCondition& gpu, const Request& request) {
  if (request.uuids &&
      std::find(request.uuids->begin(), request.uuids->end(), gpu.uuid) == request.uuids->end()) {
    return false;
  }
  if (request.name && !contains_ignoring_case(gpu.name, *request.name)) return false;
  return !request.min_memory || (gpu.memory && *gpu.memory >= *request.min_memory);
}

bool large_enough(const GpuCondition& gpu, const Request& request) {
  return !request.memory || (gpu.memory && *gpu.memory >= *request.memory);
}

std::optional<Hindrance> hindrance(const Place& place, const Request& request) {
  if (const auto own = own_hindrance(*place.gpu, request)) return own;
  if (!request.memory) {
    return place.holdings.empty() ? std::nullopt : std::optional(Hindrance::leased);
  }
  if (held_whole(place)) return Hindrance::leased;
  return fits(*place.gpu, memory_in_use(place), *request.memory) ? std::nullopt
                                                                 : std::optional(Hindrance::memory);
}

std::optional<TimePoint> available_from(const Place& place, const Request& request, TimePoint now,
                                        Unknown unknown) {
  if (!place.gpu->usable) return std::nullopt;
  const bool optimistic = unknown == Unknown::ends_now;
  GpuCondition gpu = *place.gpu;
  if (optimistic) {  // strangers may leave, and load may fall, at any moment
    gpu.strangers = 0;
    gpu.strangers_memory = {};
    gpu.utilization_pct = gpu.memory_utilization_pct = 0;
  }
  std::vector<TimePoint> times{now};
  for (const Holding& holding : place.holdings) {
    if (end_is_known(holding, now)) times.push_back(*holding.ends);
  }
  std::sort(times.begin(), times.end());
  for (const TimePoint time : times) {
    Place then{&gpu, {}};
    for (const Holding& holding : place.holdings) {
      const bool stays = end_is_known(holding, now) ? *holding.ends > time : !optimistic;
      if (stays) then.holdings.push_back(holding);
    }
    if (!hindrance(then, request)) return time;
  }
  return std::nullopt;
}

bool might_delay(const Place& place, const Holding& added, const Request& request, TimePoint from,
                 TimePoint now) {
  // From `from` on, the GPU changes only when a holding of known end leaves.
  std::vector<TimePoint> times{from};
  for (const Holding& holding : place.holdings) {
    if (end_is_known(holding, now) && *holding.ends > from) times.push_back(*holding.ends);
  }
  return std::any_of(times.begin(), times.end(), [&](TimePoint time) {
    if (added.ends && *added.ends <= time) return false;
    const bool held_for_sure =
        std::any_of(place.holdings.begin(), place.holdings.end(), [&](const Holding& holding) {
          const bool blocks = !request.memory || !holding.memory;
          return blocks && end_is_known(holding, now) && *holding.ends > time;
        });
    if (held_for_sure) return false;  // it could not have it then in any case
    if (!request.memory || !added.memory) return true;
    return might_delay_at(place, *added.memory, *request.memory, time, now);
  });
}

double load(const Place& place) {
  if (held_whole(place)) return 1;
  if (!place.gpu->memory || place.gpu->memory->count == 0) return 0;
  return static_cast<double>(memory_in_use(place)) / static_cast<double>(place.gpu->memory->count);
}

}  // namespace berth::schedule
