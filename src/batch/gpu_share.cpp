// Sharing of cards by number; see gpu_share.h.
#include "batch/gpu_share.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include "base/terminal.h"
#include "devices/driver.h"
#include "schedule/plan.h"
#include "status/host_view.h"

namespace berth::batch {

// Beside others, kContextMargin must remain on a card (see schedule/match.cpp). A little less than
// the rest is reserved, for a display or the like; not so much that one more would fit.
Bytes memory_per_job(Bytes gpu_memory, unsigned jobs) {
  const std::uint64_t usable = gpu_memory.count > kContextMargin.count
                                   ? gpu_memory.count - kContextMargin.count
                                   : gpu_memory.count;
  const std::uint64_t share = usable / jobs;
  const std::uint64_t spare =
      std::min<std::uint64_t>(kContextMargin.count, share / (2 * (jobs + 1ULL)));
  return Bytes{share - spare};
}

Result<Bytes> smallest_gpu_memory(const AcquireRequest& acquire_request) {
  auto probe = open_driver(print_driver_is_slow);
  if (!probe) return tl::make_unexpected(probe.error());
  const auto snapshot = (*probe)->snapshot();
  if (!snapshot) return tl::make_unexpected(snapshot.error());
  Request request = acquire_request.gpu_request;
  if (auto chosen = restrict_to_allowed_gpus(request, acquire_request, snapshot->gpus); !chosen) {
    return tl::make_unexpected(chosen.error());
  }
  std::optional<Bytes> smallest;
  for (const Gpu& gpu : snapshot->gpus) {
    if (!gpu.memory_total || !matches(gpu, request)) continue;
    smallest = std::min(smallest.value_or(*gpu.memory_total), *gpu.memory_total);
  }
  if (smallest) return *smallest;
  return fail(ErrorKind::impossible,
              "batch: --per-gpu needs a GPU that matches and whose memory the driver tells; "
              "'berth status' shows them");
}

}  // namespace berth::batch
