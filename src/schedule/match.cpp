// Compares one GPU with one request; see match.h.
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

// On an unused GPU, a request may take all memory. Beside other users of the GPU, kContextMargin
// must remain for CUDA contexts.
bool fits(const GpuCondition& gpu, std::uint64_t used, Bytes memory) {
  if (!gpu.memory) return false;
  const std::uint64_t margin = used == 0 ? 0 : kContextMargin.count;
  const std::uint64_t total = gpu.memory->count;
  return saturating_add(used, margin) <= total && memory.count <= total - used - margin;
}

// An allocation that has passed its announced end may end at any moment, like one without an end.
bool has_known_end(const Allocation& allocation, TimePoint now) {
  return allocation.ends && *allocation.ends > now;
}

// All possible sums of `known` and a subset of `unknown`, sorted; nullopt if there are too many.
std::optional<std::vector<std::uint64_t>> possible_memory_sums(
    std::uint64_t known, const std::vector<std::uint64_t>& unknown) {
  constexpr std::size_t kMaxSums = 4096;
  std::vector<std::uint64_t> sums{known};
  std::vector<std::uint64_t> with;
  std::vector<std::uint64_t> all;
  for (const std::uint64_t memory : unknown) {
    with.clear();
    for (const std::uint64_t sum : sums) with.push_back(saturating_add(sum, memory));
    all.clear();
    std::set_union(sums.begin(), sums.end(), with.begin(), with.end(), std::back_inserter(all));
    sums.swap(all);
    if (sums.size() > kMaxSums) return std::nullopt;
  }
  return sums;
}

// can_delay() at one moment: whether there is a possible state of the GPU at `time` in which the
// request fits without `added`, but not with it.
bool can_delay_at(const GpuOccupancy& occupancy, Bytes added, Bytes wanted, TimePoint time,
                  TimePoint now) {
  const GpuCondition& gpu = *occupancy.gpu;
  const std::uint64_t strangers = gpu.strangers_memory.count;
  std::uint64_t least = 0;
  std::uint64_t most = strangers;
  for (const Allocation& allocation : occupancy.allocations()) {
    if (!allocation.memory) continue;
    const bool known = has_known_end(allocation, now);
    if (known && *allocation.ends <= time) continue;
    if (known) least = saturating_add(least, allocation.memory->count);
    most = saturating_add(most, allocation.memory->count);
  }
  const auto delays = [&](std::uint64_t used) {
    return fits(gpu, used, wanted) && !fits(gpu, saturating_add(used, added.count), wanted);
  };
  // In most cases the least and the most possible use decide it without the states in between.
  if (!fits(gpu, least, wanted) || fits(gpu, saturating_add(most, added.count), wanted))
    return false;
  if (delays(least)) return true;
  std::vector<std::uint64_t> unknown;
  for (const Allocation& allocation : occupancy.allocations()) {
    if (allocation.memory && !has_known_end(allocation, now))
      unknown.push_back(allocation.memory->count);
  }
  const auto sums = possible_memory_sums(least, unknown);
  if (!sums) return true;
  // Strangers may use any amount up to their present use. It is enough to try both limits and the
  // largest amount with which the request still fits.
  const std::uint64_t fitting = gpu.memory->count > wanted.count + kContextMargin.count
                                    ? gpu.memory->count - wanted.count - kContextMargin.count
                                    : 0;
  return std::any_of(sums->begin(), sums->end(), [&](std::uint64_t sum) {
    const std::uint64_t with_strangers = saturating_add(sum, strangers);
    return delays(sum) || delays(with_strangers) ||
           delays(std::clamp(fitting, sum, with_strangers));
  });
}

// The reasons that do not depend on the leases of the GPU.
std::optional<BlockReason> find_own_block_reason(const GpuCondition& gpu, const Request& request) {
  if (!gpu.usable) return BlockReason::unusable;
  if (gpu.strangers > request.max_processes) return BlockReason::strangers;
  if (exceeds(gpu.utilization_pct, request.max_utilization_pct) ||
      exceeds(gpu.memory_utilization_pct, request.max_memory_utilization_pct)) {
    return BlockReason::busy;
  }
  return std::nullopt;
}

}  // namespace

void GpuOccupancy::add(const Allocation& allocation) {
  allocations_.push_back(allocation);
  if (allocation.memory) in_use_ = saturating_add(in_use_, allocation.memory->count);
  held_exclusively_ = held_exclusively_ || !allocation.memory;
}

bool is_matching(const GpuCondition& gpu, const Request& request) {
  if (request.uuids &&
      std::find(request.uuids->begin(), request.uuids->end(), gpu.uuid) == request.uuids->end()) {
    return false;
  }
  if (request.name && !contains_ignoring_case(gpu.name, *request.name)) return false;
  return !request.min_memory || (gpu.memory && *gpu.memory >= *request.min_memory);
}

bool is_large_enough(const GpuCondition& gpu, const Request& request) {
  return !request.memory || (gpu.memory && *gpu.memory >= *request.memory);
}

bool is_suitable(const GpuCondition& gpu, const Request& request) {
  return is_matching(gpu, request) && is_large_enough(gpu, request);
}

std::optional<BlockReason> find_block_reason(const GpuOccupancy& occupancy,
                                             const Request& request) {
  if (const auto own = find_own_block_reason(*occupancy.gpu, request)) return own;
  if (!request.memory) {
    return occupancy.allocations().empty() ? std::nullopt : std::optional(BlockReason::leased);
  }
  if (occupancy.is_held_exclusively()) return BlockReason::leased;
  return fits(*occupancy.gpu, occupancy.memory_in_use(), *request.memory)
             ? std::nullopt
             : std::optional(BlockReason::memory);
}

bool has_room(const GpuOccupancy& occupancy) {
  if (!occupancy.gpu->usable || occupancy.is_held_exclusively()) return false;
  return occupancy.allocations().empty() ||
         fits(*occupancy.gpu, occupancy.memory_in_use(), Bytes{1});
}

std::optional<TimePoint> available_from(const GpuOccupancy& occupancy, const Request& request,
                                        TimePoint now, UnknownEnd unknown) {
  const GpuCondition& gpu = *occupancy.gpu;
  if (!gpu.usable) return std::nullopt;
  const bool optimistic = unknown == UnknownEnd::ends_now;
  // In the optimistic case, strangers may exit and the load may fall at any moment.
  if (!optimistic && find_own_block_reason(gpu, request)) return std::nullopt;
  std::uint64_t used = optimistic ? 0 : gpu.strangers_memory.count;
  bool blocked = false;
  const auto add = [&](const Allocation& allocation) {
    blocked = blocked || !request.memory || !allocation.memory;
    if (allocation.memory) used = saturating_add(used, allocation.memory->count);
  };
  const auto is_available = [&] {
    return !blocked && (!request.memory || fits(gpu, used, *request.memory));
  };
  std::vector<const Allocation*> known;
  for (const Allocation& allocation : occupancy.allocations()) {
    if (has_known_end(allocation, now)) {
      known.push_back(&allocation);
    } else if (!optimistic) {
      add(allocation);
    }
  }
  // From the last end back to now: the allocations that end later than a time are those that were
  // added before it.
  std::sort(known.begin(), known.end(),
            [](const Allocation* a, const Allocation* b) { return *a->ends > *b->ends; });
  std::optional<TimePoint> earliest;
  auto next = known.begin();
  while (is_available()) {
    if (next == known.end()) return now;
    earliest = (*next)->ends;
    add(**next++);
  }
  return earliest;
}

bool can_delay(const GpuOccupancy& occupancy, const Allocation& added, const Request& request,
               TimePoint from, TimePoint now) {
  // Until this time the GPU is certainly held, so that the request could not get it in any case.
  TimePoint held_until = from;
  for (const Allocation& allocation : occupancy.allocations()) {
    const bool blocks = !request.memory || !allocation.memory;
    if (blocks && has_known_end(allocation, now))
      held_until = std::max(held_until, *allocation.ends);
  }
  const auto gone_by = [&](TimePoint time) { return added.ends && *added.ends <= time; };
  if (gone_by(held_until)) return false;
  if (!request.memory || !added.memory) return true;
  // Each moment below costs a sum over all allocations, and a hostile user can make thousands of
  // them. More than this limit do not share a GPU in practice: "can delay" is the safe answer.
  constexpr std::size_t kMaxExactAllocations = 32;
  if (occupancy.allocations().size() > kMaxExactAllocations) return true;
  // After that, the possible states change only at the known end of an allocation.
  const auto delays_at = [&](TimePoint time) {
    return !gone_by(time) && can_delay_at(occupancy, *added.memory, *request.memory, time, now);
  };
  if (delays_at(held_until)) return true;
  return std::any_of(occupancy.allocations().begin(), occupancy.allocations().end(),
                     [&](const Allocation& allocation) {
                       return has_known_end(allocation, now) && *allocation.ends > held_until &&
                              delays_at(*allocation.ends);
                     });
}

double memory_load(const GpuOccupancy& occupancy) {
  if (occupancy.is_held_exclusively()) return 1;
  if (!occupancy.gpu->memory || occupancy.gpu->memory->count == 0) return 0;
  return static_cast<double>(occupancy.memory_in_use()) /
         static_cast<double>(occupancy.gpu->memory->count);
}

}  // namespace berth::schedule
