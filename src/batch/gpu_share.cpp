// Divides the memory of a GPU among jobs; see gpu_share.h.
#include "batch/gpu_share.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include "base/terminal.h"
#include "devices/driver.h"
#include "schedule/plan.h"
#include "status/host_view.h"

namespace berth::batch {

// On a shared GPU the scheduler keeps kContextMargin free (see schedule/match.cpp). The jobs
// reserve a little less than the rest, which leaves room for a display or the like; but not so
// little that another job would fit.
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
  const auto probe = TRY(open_driver(print_driver_is_slow));
  const auto snapshot = TRY(probe->snapshot());
  Request request = acquire_request.gpu_request;
  TRY(restrict_to_allowed_gpus(request, acquire_request, snapshot.gpus));
  std::optional<Bytes> smallest;
  for (const Gpu& gpu : snapshot.gpus) {
    if (!gpu.memory_total || !matches(gpu, request)) continue;
    smallest = std::min(smallest.value_or(*gpu.memory_total), *gpu.memory_total);
  }
  if (smallest) return *smallest;
  return fail(
      ErrorKind::impossible,
      "batch: --per-gpu needs a matching GPU whose memory the driver reports; 'berth status' "
      "shows the GPUs");
}

}  // namespace berth::batch
