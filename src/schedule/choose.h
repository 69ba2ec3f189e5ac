// Chooses among the GPUs that a request could be granted.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/match.h"

namespace berth::schedule {

// Chooses `count` of `candidates`, which are indices into `occupancies`, at least `count` of them.
// The result is sorted. A single GPU is chosen by the policy; several are chosen by how well they
// are connected, and by the policy among sets that are connected equally well.
std::vector<std::size_t> choose_gpus(const std::vector<GpuOccupancy>& occupancies,
                                     std::vector<std::size_t> candidates, std::size_t count,
                                     Policy policy, const Closeness& closeness, std::uint64_t seed);

}  // namespace berth::schedule
