// Which of several GPUs that would all do.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/match.h"

namespace berth::schedule {

// `count` of `candidates` (positions in `occupancies`, at least so many), in the order of the
// places. One GPU goes by the policy; several go together by how well they are connected, and by
// the policy among sets that are connected equally well.
std::vector<std::size_t> choose_gpus(const std::vector<GpuOccupancy>& occupancies,
                                     std::vector<std::size_t> candidates, std::size_t count,
                                     Policy policy, const Closeness& closeness, std::uint64_t seed);

}  // namespace berth::schedule
