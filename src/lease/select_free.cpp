// The choice without a lease; see choice.h.
#include "lease/select_free.h"

#include <chrono>
#include <fmt/format.h>
#include <utility>

#include "lease/sublease.h"
#include "status/explain.h"
#include "status/status.h"

namespace berth {

Result<std::vector<std::string>> choose_free(Probe& probe, const AcquireRequest& ask) {
  auto snapshot = probe.snapshot();
  if (!snapshot) return tl::make_unexpected(snapshot.error());
  QueuedTicket ticket{"", ask.request};
  if (auto chosen = restrict_choice(ticket.request, ask, snapshot->gpus); !chosen) {
    return tl::make_unexpected(chosen.error());
  }
  if (ask.selector) narrow(ticket.request, ask.selector());
  HarbourContents ledger;
  auto harbour = Harbour::open_existing(ask.harbour);
  if (!harbour) return tl::make_unexpected(harbour.error());
  if (*harbour) {
    auto read = read_contents(**harbour);
    if (!read) return tl::make_unexpected(read.error());
    ledger = std::move(*read);
    const auto outer = enclosing_lease(**harbour, ask.within);
    if (!outer) return tl::make_unexpected(outer.error());
    if (*outer) return choose_within(**outer, ledger.leases, ticket.request, *snapshot);
  }
  Topology topology;
  if (ask.request.count > 1) topology = probe.topology().value_or(Topology{});
  const HostView scene = attribute_processes(*snapshot, ledger.leases, ledger.drains);
  const PlanInput input = plan_input(scene, topology, std::chrono::system_clock::now());
  Outcome outcome = Planner(input).decide(ticket);
  if (outcome.grant) return std::move(outcome.grant->uuids);
  if (outcome.impossible) {
    return tl::make_unexpected(explain_impossible(*outcome.impossible, ticket.request, scene));
  }
  return fail(ErrorKind::not_granted,
              fmt::format("not free now: {}", explain_wait(*outcome.wait, ticket.request, scene)));
}

}  // namespace berth
