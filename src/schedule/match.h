// Whether one GPU would do for a request: for ever, now, and from when.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "schedule/plan.h"

namespace berth::schedule {

// What one lease, or one grant of this decision, takes up on one GPU.
struct Holding {
  std::string id;
  std::optional<Bytes> memory;    // nothing: the whole GPU
  std::optional<TimePoint> ends;  // nothing: nobody knows
};

struct Place {
  const GpuCondition* gpu = nullptr;
  std::vector<Holding> holdings;
};

// Of the right name, size and UUID, whatever goes on there now.
bool matches(const GpuCondition& gpu, const Request& request);

// And large enough for what the request would reserve on it.
bool large_enough(const GpuCondition& gpu, const Request& request);

// What keeps the request from this GPU, or nothing.
std::optional<Hindrance> hindrance(const Place& place, const Request& request);

// What to think of a holding, or a stranger, of which nobody knows when it ends.
enum class Unknown { ends_now, never_ends };

// When the GPU is to be had, or nothing if never.
std::optional<TimePoint> available_from(const Place& place, const Request& request, TimePoint now,
                                        Unknown unknown);

// Might `added`, a holding that is not there yet, keep the request from this GPU at some moment
// after `from` at which it could otherwise have had it? Holdings of unknown end, and strangers, may
// leave in any order at any moment; the others leave when they say.
bool might_delay(const Place& place, const Holding& added, const Request& request, TimePoint from,
                 TimePoint now);

// The share of the GPU's memory that is spoken for; 1 for one that is held whole.
double load(const Place& place);

}  // namespace berth::schedule
