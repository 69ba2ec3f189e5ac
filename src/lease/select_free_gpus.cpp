// Asks the scheduler for GPUs as if the queue were empty; see select_free_gpus.h.
#include "lease/select_free_gpus.h"

#include <chrono>
#include <fmt/format.h>
#include <utility>

#include "lease/sublease.h"
#include "status/explain.h"
#include "status/status.h"

namespace berth {

Result<std::vector<std::string>> select_free_gpus(Probe& probe, const AcquireRequest& request) {
  const Snapshot snapshot = TRY(probe.snapshot());
  QueuedTicket ticket{"", request.gpu_request};
  TRY(restrict_to_allowed_gpus(ticket.request, request, snapshot.gpus));
  if (request.selector) intersect_allowed_gpus(ticket.request, request.selector());
  HarbourContents contents;
  if (auto harbour = TRY(Harbour::open_existing(request.harbour))) {
    contents = TRY(read_contents(*harbour));
    const auto parent = TRY(find_parent_lease(*harbour, request.parent_lease));
    if (parent) return select_parent_gpus(*parent, contents.leases, ticket.request, snapshot);
  }
  Topology topology;
  if (request.gpu_request.count > 1) topology = probe.topology().value_or(Topology{});
  const HostView view = make_host_view(snapshot, contents.leases, contents.drains);
  const PlanInput input = make_plan_input(view, topology, std::chrono::system_clock::now());
  Outcome outcome = Planner(input).decide(ticket);
  if (outcome.grant) return std::move(outcome.grant->uuids);
  if (outcome.impossible) {
    return tl::make_unexpected(explain_impossible(*outcome.impossible, ticket.request, view));
  }
  return fail(ErrorKind::not_granted,
              fmt::format("not free now: {}", explain_wait(*outcome.wait, ticket.request, view)));
}

}  // namespace berth
