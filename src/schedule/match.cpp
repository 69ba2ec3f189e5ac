// One GPU against one request; see match.h.
#include "schedule/match.h"

#include <algorithm>
#include <cctype>
#include <iterator>

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

// Alone, a request may have the whole GPU; beside others, some room must remain for contexts.
bool fits(const GpuCondition& gpu, std::uint64_t used, Bytes memory) {
  if (!gpu.memory) return false;
  const std::uint64_t margin = used == 0 ? 0 : kContextMargin.count;
  const std::uint64_t total = gpu.memory->count;
  return capped_sum(used, margin) <= total && memory.count <= total - used - margin;
}

// What should have ended and has not may end at any moment, like what never said.
bool end_is_known(const Allocation& holding, TimePoint now) {
  return holding.ends && *holding.ends > now;
}

// What `known`, and any of `unknown`, use together; nothing if there are too many ways to count.
std::optional<std::vector<std::uint64_t>> possible_uses(std::uint64_t known,
                                                        const std::vector<std::uint64_t>& unknown) {
  constexpr std::size_t kMostWays = 4096;
  std::vector<std::uint64_t> sums{known};
  std::vector<std::uint64_t> with;
  std::vector<std::uint64_t> all;
  for (const std::uint64_t memory : unknown) {
    with.clear();
    for (const std::uint64_t sum : sums) with.push_back(capped_sum(sum, memory));
    all.clear();
    std::set_union(sums.begin(), sums.end(), with.begin(), with.end(), std::back_inserter(all));
    sums.swap(all);
    if (sums.size() > kMostWays) return std::nullopt;
  }
  return sums;
}

// At one moment: is there a way in which the request fits without `added`, and not with it?
bool might_delay_at(const GpuOccupancy& place, Bytes added, Bytes wanted, TimePoint time, TimePoint now) {
  const GpuCondition& gpu = *place.gpu;
  const std::uint64_t strangers = gpu.strangers_memory.count;
  std::uint64_t least = 0;
  std::uint64_t most = strangers;
  for (const Allocation& holding : place.holdings()) {
    if (!holding.memory) continue;
    const bool known = end_is_known(holding, now);
    if (known && *holding.ends <= time) continue;
    if (known) least = capped_sum(least, holding.memory->count);
    most = capped_sum(most, holding.memory->count);
  }
  const auto delays = [&](std::uint64_t used) {
    return fits(gpu, used, wanted) && !fits(gpu, capped_sum(used, added.count), wanted);
  };
  // Mostly the ends of what may be used tell it, and no way in between has to be looked at.
  if (!fits(gpu, least, wanted) || fits(gpu, capped_sum(most, added.count), wanted)) return false;
  if (delays(least)) return true;
  std::vector<std::uint64_t> unknown;
  for (const Allocation& holding : place.holdings()) {
    if (holding.memory && !end_is_known(holding, now)) unknown.push_back(holding.memory->count);
  }
  const auto sums = possible_uses(least, unknown);
  if (!sums) return true;
  // Strangers use anything up to what they use now: try both ends, and the most that still fits.
  const std::uint64_t fitting = gpu.memory->count > wanted.count + kContextMargin.count
                                    ? gpu.memory->count - wanted.count - kContextMargin.count
                                    : 0;
  return std::any_of(sums->begin(), sums->end(), [&](std::uint64_t sum) {
    const std::uint64_t with_strangers = capped_sum(sum, strangers);
    return delays(sum) || delays(with_strangers) ||
           delays(std::clamp(fitting, sum, with_strangers));
  });
}

// What does not depend on who holds the GPU.
std::optional<BlockReason> own_hindrance(const GpuCondition& gpu, const Request& request) {
  if (!gpu.usable) return BlockReason::unusable;
  if (gpu.strangers > request.max_processes) return BlockReason::strangers;
  if (exceeds(gpu.utilization_pct, request.max_utilization_pct) ||
      exceeds(gpu.memory_utilization_pct, request.max_memory_utilization_pct)) {
    return BlockReason::busy;
  }
  return std::nullopt;
}

}  // namespace

void GpuOccupancy::add(const Allocation& holding) {
  holdings_.push_back(holding);
  if (holding.memory) in_use_ = capped_sum(in_use_, holding.memory->count);
  held_whole_ = held_whole_ || !holding.memory;
}

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

std::optional<BlockReason> hindrance(const GpuOccupancy& place, const Request& request) {
  if (const auto own = own_hindrance(*place.gpu, request)) return own;
  if (!request.memory) {
    return place.holdings().empty() ? std::nullopt : std::optional(BlockReason::leased);
  }
  if (place.held_whole()) return BlockReason::leased;
  return fits(*place.gpu, place.memory_in_use(), *request.memory)
             ? std::nullopt
             : std::optional(BlockReason::memory);
}

bool open(const GpuOccupancy& place) {
  if (!place.gpu->usable || place.held_whole()) return false;
  return place.holdings().empty() || fits(*place.gpu, place.memory_in_use(), Bytes{1});
}

std::optional<TimePoint> available_from(const GpuOccupancy& place, const Request& request, TimePoint now,
                                        Unknown unknown) {
  const GpuCondition& gpu = *place.gpu;
  if (!gpu.usable) return std::nullopt;
  const bool optimistic = unknown == Unknown::ends_now;
  // Strangers may leave, and load may fall, at any moment.
  if (!optimistic && own_hindrance(gpu, request)) return std::nullopt;
  for (std::optional<TimePoint> time = now; time;) {
    std::uint64_t used = optimistic ? 0 : gpu.strangers_memory.count;
    bool blocked = false;
    std::optional<TimePoint> next;  // when something changes
    for (const Allocation& holding : place.holdings()) {
      const bool known = end_is_known(holding, now);
      if (known ? *holding.ends <= *time : optimistic) continue;
      blocked = blocked || !request.memory || !holding.memory;
      if (holding.memory) used = capped_sum(used, holding.memory->count);
      if (known && (!next || *holding.ends < *next)) next = holding.ends;
    }
    if (!blocked && (!request.memory || fits(gpu, used, *request.memory))) return time;
    time = next;
  }
  return std::nullopt;
}

bool might_delay(const GpuOccupancy& place, const Allocation& added, const Request& request, TimePoint from,
                 TimePoint now) {
  // Until then the GPU is held for sure, so that the request could not have it in any case.
  TimePoint held_until = from;
  for (const Allocation& holding : place.holdings()) {
    const bool blocks = !request.memory || !holding.memory;
    if (blocks && end_is_known(holding, now)) held_until = std::max(held_until, *holding.ends);
  }
  const auto gone_by = [&](TimePoint time) { return added.ends && *added.ends <= time; };
  if (gone_by(held_until)) return false;
  if (!request.memory || !added.memory) return true;
  // From then on, the GPU changes only when a holding of known end leaves.
  const auto delays_at = [&](TimePoint time) {
    return !gone_by(time) && might_delay_at(place, *added.memory, *request.memory, time, now);
  };
  if (delays_at(held_until)) return true;
  return std::any_of(place.holdings().begin(), place.holdings().end(), [&](const Allocation& holding) {
    return end_is_known(holding, now) && *holding.ends > held_until && delays_at(*holding.ends);
  });
}

double load(const GpuOccupancy& place) {
  if (place.held_whole()) return 1;
  if (!place.gpu->memory || place.gpu->memory->count == 0) return 0;
  return static_cast<double>(place.memory_in_use()) / static_cast<double>(place.gpu->memory->count);
}

}  // namespace berth::schedule
