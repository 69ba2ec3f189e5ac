// Whether one GPU can satisfy a request: ever, now, and from which time on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "schedule/plan.h"

namespace berth::schedule {

// The part of one GPU that a lease, or a grant of the current decision, takes.
struct Allocation {
  const std::string* id;          // of the lease or ticket, which must outlive this
  std::optional<Bytes> memory;    // nullopt: the whole GPU
  std::optional<TimePoint> ends;  // nullopt: unknown
};

// A GPU with all its allocations. `gpu` must outlive this.
class GpuOccupancy {
 public:
  explicit GpuOccupancy(const GpuCondition& gpu_)
      : gpu(&gpu_), in_use_(gpu_.strangers_memory.count) {}

  const GpuCondition* gpu;

  const std::vector<Allocation>& allocations() const { return allocations_; }
  void add(const Allocation& allocation);

  // These are stored, because a decision needs them many times.
  std::uint64_t memory_in_use() const { return in_use_; }  // by allocations and strangers
  bool is_held_exclusively() const { return held_exclusively_; }

 private:
  std::vector<Allocation> allocations_;
  std::uint64_t in_use_;
  bool held_exclusively_ = false;
};

// Whether name, size and UUID of the GPU match the request, independent of its present use.
bool is_matching(const GpuCondition& gpu, const Request& request);

// Whether the GPU has as much memory as the request would reserve on it.
bool is_large_enough(const GpuCondition& gpu, const Request& request);

// Whether both hold, so that the request could be granted this GPU at some time.
bool is_suitable(const GpuCondition& gpu, const Request& request);

// The reason why the request cannot be granted this GPU now, or nullopt if it can.
std::optional<BlockReason> find_block_reason(const GpuOccupancy& occupancy, const Request& request);

// Whether any request could be granted this GPU now.
bool has_room(const GpuOccupancy& occupancy);

// The assumption about allocations and strangers whose end is unknown.
enum class UnknownEnd { ends_now, never_ends };

// The earliest time at which the request could be granted this GPU; nullopt: never.
std::optional<TimePoint> available_from(const GpuOccupancy& occupancy, const Request& request,
                                        TimePoint now, UnknownEnd unknown_end);

// Whether the new allocation `added` could delay the request: whether there may be a moment after
// `from` at which the request could be granted this GPU without `added`, but not with it.
// Allocations of unknown end, and strangers, may end in any order at any moment; all others end at
// their announced time.
bool can_delay(const GpuOccupancy& occupancy, const Allocation& added, const Request& request,
               TimePoint from, TimePoint now);

// The share of the GPU's memory that is in use; 1 for a GPU that is held exclusively.
double memory_load(const GpuOccupancy& occupancy);

}  // namespace berth::schedule
