// Computes the ends of leases; see lease_end.h.
#include "status/lease_end.h"

#include "status/gpu_state.h"

namespace berth {

std::string_view to_string(EndSource source) {
  return source == EndSource::announced ? "announced" : "estimated";
}

std::optional<LeaseEnd> find_lease_end(const Record& lease, TimePoint now) {
  const auto at = lease.expected_end();
  if (!at) return std::nullopt;
  return LeaseEnd{*at, lease.time_is_estimated ? EndSource::estimated : EndSource::announced,
                  *at <= now};
}

std::optional<LeaseEnd> find_last_end(const std::vector<const Record*>& leases, TimePoint now) {
  std::optional<LeaseEnd> last;
  bool is_estimate = false;
  bool is_unknown = false;
  for (const Record* lease : leases) {
    const auto end = find_lease_end(*lease, now);
    if (end && end->overdue) return end;
    is_unknown = is_unknown || !end;
    if (!end) continue;
    is_estimate = is_estimate || end->source == EndSource::estimated;
    if (!last || last->at < end->at) last = end;
  }
  if (is_unknown) return std::nullopt;
  if (last && is_estimate) last->source = EndSource::estimated;
  return last;
}

std::optional<NextFree> find_next_free(const HostView& view, TimePoint now,
                                       const Request* request) {
  std::optional<NextFree> next;
  for (const GpuWithLeases& gpu_view : view.gpus) {
    if (request != nullptr && !matches(gpu_view.gpu, *request)) continue;
    const GpuStateReason state = classify(gpu_view);
    if (state.state == GpuState::free) return std::nullopt;
    const bool only_leased = state.state == GpuState::leased || state.state == GpuState::shared;
    if (!only_leased || !state.reason.empty()) continue;
    std::vector<const Record*> leases;
    for (const Record& lease : view.leases) {
      if (holds_gpu(lease, gpu_view.gpu)) leases.push_back(&lease);
    }
    const auto end = find_last_end(leases, now);
    if (!end || end->overdue || (next && next->at < end->at)) continue;
    if (!next || end->at < next->at) next = NextFree{{}, end->at, end->source};
    next->gpus.push_back(gpu_view.gpu.index);
    if (end->source == EndSource::estimated) next->source = end->source;
  }
  return next;
}

}  // namespace berth
