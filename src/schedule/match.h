// Whether one GPU would do for a request: for ever, now, and from when.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "schedule/plan.h"

namespace berth::schedule {

// What one lease, or one grant of this decision, takes up on one GPU.
struct Allocation {
  const std::string* id;
  std::optional<Bytes> memory;    // nothing: the whole GPU
  std::optional<TimePoint> ends;  // nothing: nobody knows
};

class GpuOccupancy {
 public:
  explicit GpuOccupancy(const GpuCondition& gpu_)
      : gpu(&gpu_), in_use_(gpu_.strangers_memory.count) {}

  const GpuCondition* gpu;

  const std::vector<Allocation>& allocations() const { return allocations_; }
  void add(const Allocation& allocation);

  // The sums, kept because a decision asks for them again and again.
  std::uint64_t memory_in_use() const { return in_use_; }  // of holdings and strangers
  bool is_held_exclusively() const { return held_exclusively_; }

 private:
  std::vector<Allocation> allocations_;
  std::uint64_t in_use_;
  bool held_exclusively_ = false;
};

// Of the right name, size and UUID, whatever goes on there now.
bool is_matching(const GpuCondition& gpu, const Request& request);

// And large enough for what the request would reserve on it.
bool is_large_enough(const GpuCondition& gpu, const Request& request);

// What keeps the request from this GPU, or nothing.
std::optional<BlockReason> find_block_reason(const GpuOccupancy& occupancy, const Request& request);

// Is there a request that nothing keeps from this GPU?
bool has_room(const GpuOccupancy& occupancy);

// What to think of a holding, or a stranger, of which nobody knows when it ends.
enum class UnknownEnd { ends_now, never_ends };

// When the GPU is to be had, or nothing if never.
std::optional<TimePoint> available_from(const GpuOccupancy& occupancy, const Request& request,
                                        TimePoint now, UnknownEnd unknown_end);

// Might `added`, a holding that is not there yet, keep the request from this GPU at some moment
// after `from` at which it could otherwise have had it? Holdings of unknown end, and strangers, may
// leave in any order at any moment; the others leave when they say.
bool can_delay(const GpuOccupancy& occupancy, const Allocation& added, const Request& request,
               TimePoint from, TimePoint now);

// The share of the GPU's memory that is spoken for; 1 for one that is held whole.
double memory_load(const GpuOccupancy& occupancy);

}  // namespace berth::schedule
