// Sharing of cards by number; see share.h.
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
Bytes share_of_card(Bytes card, unsigned jobs) {
  const std::uint64_t usable =
      card.count > kContextMargin.count ? card.count - kContextMargin.count : card.count;
  const std::uint64_t share = usable / jobs;
  const std::uint64_t spare =
      std::min<std::uint64_t>(kContextMargin.count, share / (2 * (jobs + 1ULL)));
  return Bytes{share - spare};
}

Result<Bytes> smallest_card(const AcquireRequest& ask) {
  auto probe = open_driver(say_driver_is_slow);
  if (!probe) return tl::make_unexpected(probe.error());
  const auto snapshot = (*probe)->snapshot();
  if (!snapshot) return tl::make_unexpected(snapshot.error());
  Request request = ask.request;
  if (auto chosen = restrict_choice(request, ask, snapshot->gpus); !chosen) {
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
