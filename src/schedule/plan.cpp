// Decides which tickets are granted which GPUs; see plan.h.
#include "schedule/plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "schedule/choose.h"
#include "schedule/dominance_cache.h"
#include "schedule/match.h"

namespace berth {
namespace {

using schedule::Allocation;
using schedule::DominanceCache;
using schedule::GpuOccupancy;
using schedule::UnknownEnd;

constexpr std::chrono::nanoseconds kMinRunTime(1);  // no job ends at the moment when it starts

// The reservation of the first ticket that cannot be granted: which GPUs later tickets may use
// without delaying it.
class Reservation {
 public:
  Reservation(const QueuedTicket& ticket, const std::vector<GpuOccupancy>& occupancies,
              TimePoint now)
      : ticket_(ticket),
        now_(now),
        earliest_(occupancies.size()),
        chosen_(occupancies.size(), false) {
    std::vector<TimePoint> possible;
    std::vector<std::pair<TimePoint, std::size_t>> certain;
    for (std::size_t i = 0; i < occupancies.size(); ++i) {
      if (!schedule::is_suitable(*occupancies[i].gpu, ticket.request)) continue;
      earliest_[i] = available_from(occupancies[i], ticket.request, now, UnknownEnd::ends_now);
      if (earliest_[i]) possible.push_back(*earliest_[i]);
      if (const auto time =
              available_from(occupancies[i], ticket.request, now, UnknownEnd::never_ends)) {
        certain.emplace_back(*time, i);
      }
    }
    const std::size_t count = ticket.request.count;
    const auto first_ones = static_cast<std::ptrdiff_t>(count);
    optimistic_start_ = now;
    if (possible.size() >= count) {
      std::nth_element(possible.begin(), possible.begin() + first_ones - 1, possible.end());
      optimistic_start_ = possible[count - 1];
    }
    if (certain.size() < count) return;
    std::partial_sort(certain.begin(), certain.begin() + first_ones, certain.end());
    certain_start_ = certain[count - 1].first;
    for (std::size_t i = 0; i < count; ++i) chosen_[certain[i].second] = true;
  }

  const std::string& ticket() const { return ticket_.id; }

  // The start of the ticket, if the leases that block it have a known end.
  std::optional<TimePoint> certain_start() const { return certain_start_; }

  // Whether a later ticket may be granted this GPU.
  bool allows(std::size_t i, const GpuOccupancy& occupancy, const Allocation& later) const {
    if (!earliest_[i]) return true;  // the reservation cannot use this GPU
    const bool spare = certain_start_ && !chosen_[i] && *earliest_[i] >= *certain_start_;
    return spare || !can_delay(occupancy, later, ticket_.request, optimistic_start_, now_);
  }

 private:
  const QueuedTicket& ticket_;
  TimePoint now_;
  // For each GPU: when it is available if everything of unknown end ends now; nullopt: never.
  std::vector<std::optional<TimePoint>> earliest_;
  std::vector<bool> chosen_;  // the GPUs with which the ticket starts at certain_start_
  TimePoint optimistic_start_;
  std::optional<TimePoint> certain_start_;
};

}  // namespace

class Planner::State {
 public:
  explicit State(const PlanInput& input) : input_(input) {
    occupancies_.reserve(input.gpus.size());
    // An index by UUID: comparing each lease with each GPU would be too slow on a large server.
    std::unordered_multimap<std::string_view, std::size_t> positions(input.gpus.size());
    for (const GpuCondition& gpu : input.gpus) {
      positions.emplace(gpu.uuid, occupancies_.size());
      occupancies_.emplace_back(gpu);
    }
    for (const HeldLease& lease : input.leases) {
      if (!lease.profiled_job.empty()) profiled_by_.emplace(lease.profiled_job, lease.id);
      Allocation allocation{&lease.id, lease.memory, lease.ends};
      if (lease.memory) allocation.memory = std::max(*lease.memory, lease.observed);
      for (const std::string& uuid : lease.uuids) {
        const auto [first, last] = positions.equal_range(uuid);
        for (auto found = first; found != last; ++found) {
          GpuOccupancy& occupancy = occupancies_[found->second];
          const auto& existing = occupancy.allocations();
          // A record may contain a UUID twice.
          const bool repeated = !existing.empty() && existing.back().id == allocation.id;
          if (!repeated) occupancy.add(allocation);
        }
      }
    }
    for (std::size_t i = 0; i < occupancies_.size(); ++i) {
      if (schedule::has_room(occupancies_[i])) open_gpus_.push_back(i);
    }
  }

  bool is_exhausted() const { return open_gpus_.empty(); }

  Outcome decide(const QueuedTicket& ticket, Explain explain) {
    Outcome outcome;
    outcome.ticket = ticket.id;
    outcome.impossible = find_impossible(ticket.request);
    if (outcome.impossible) return outcome;
    outcome.wait.emplace();
    if (const auto profiled = profiled_by_.find(ticket.profiled_job);
        profiled != profiled_by_.end()) {
      outcome.wait->profiled_by = profiled->second;
      return outcome;
    }
    if (!ticket.profiled_job.empty() && !ticket.stopped) {
      profiled_by_.emplace(ticket.profiled_job, ticket.id);
    }
    // Without a reservation this ticket may become the reservation, so it cannot be skipped.
    if (explain == Explain::no && reservation_ && refused_.covers(ticket.request)) return outcome;
    const auto candidates =
        explain == Explain::yes ? available(ticket, outcome.wait->blockers) : available(ticket);
    outcome.wait->available = candidates.size();
    const bool enough = candidates.size() >= ticket.request.count;
    if (enough && !ticket.stopped) {
      outcome.wait.reset();
      outcome.grant = grant(ticket, candidates);
      return outcome;
    }
    outcome.wait->passed_over = enough;
    if (!enough) remember_refusal(ticket.request);
    if (!ticket.stopped && !reservation_) {
      reservation_.emplace(ticket, occupancies_, input_.now);
      outcome.wait->expected_start = reservation_->certain_start();
      std::erase_if(open_gpus_, [this](std::size_t i) { return is_closed(i); });
    }
    return outcome;
  }

  bool can_leave_out(const QueuedTicket& ticket) {
    if (find_impossible(ticket.request)) return true;
    // The first ticket that would measure a job type keeps later ones from measuring it.
    if (!ticket.profiled_job.empty()) return profiled_by_.contains(ticket.profiled_job);
    // The first ticket that has to wait makes the reservation.
    if (!reservation_) return false;
    if (refused_.covers(ticket.request)) return true;
    if (available(ticket).size() >= ticket.request.count) return false;
    remember_refusal(ticket.request);
    return true;
  }

  std::optional<Impossible> find_impossible(const Request& request) {
    if (possible_.covers(request)) return std::nullopt;
    Impossible found;
    for (const GpuOccupancy& occupancy : occupancies_) {
      if (!schedule::is_matching(*occupancy.gpu, request)) continue;
      ++found.matching;
      found.largest = std::max(found.largest, occupancy.gpu->memory.value_or(Bytes{}));
      if (schedule::is_large_enough(*occupancy.gpu, request)) ++found.large_enough;
    }
    if (found.large_enough < request.count) return found;
    Request possible = request;
    possible.time.reset();  // the answer does not depend on the run time
    possible_.add(std::move(possible));
    return std::nullopt;
  }

 private:
  // During one decision GPUs only fill up. So a request that asks for at least as much as a refused
  // one is refused, too, without checking the GPUs again.
  void remember_refusal(const Request& request) {
    Request refused = request;
    // Without a reservation, the run time was not the reason for the refusal.
    if (!reservation_) refused.time = std::chrono::nanoseconds::zero();
    refused_.add(std::move(refused));
  }

  bool is_reserved(std::size_t i, const Allocation& wanted) const {
    return reservation_ && !reservation_->allows(i, occupancies_[i], wanted);
  }

  // The reason why the ticket cannot be granted this suitable GPU now.
  std::optional<BlockReason> find_block_reason(std::size_t i, const QueuedTicket& ticket) const {
    if (const auto found = schedule::find_block_reason(occupancies_[i], ticket.request))
      return found;
    return is_reserved(i, allocation_for(ticket)) ? std::optional(BlockReason::reserved)
                                                  : std::nullopt;
  }

  // The GPUs that the ticket could be granted now.
  std::vector<std::size_t> available(const QueuedTicket& ticket) const {
    std::vector<std::size_t> candidates;
    for (const std::size_t i : open_gpus_) {
      if (schedule::is_suitable(*occupancies_[i].gpu, ticket.request) &&
          !find_block_reason(i, ticket))
        candidates.push_back(i);
    }
    return candidates;
  }

  // The same; adds the reasons for the other suitable GPUs to `blockers`.
  std::vector<std::size_t> available(const QueuedTicket& ticket,
                                     std::vector<Blocker>& blockers) const {
    std::vector<std::size_t> candidates;
    blockers.reserve(occupancies_.size());
    for (std::size_t i = 0; i < occupancies_.size(); ++i) {
      if (!schedule::is_suitable(*occupancies_[i].gpu, ticket.request)) continue;
      const auto found = find_block_reason(i, ticket);
      if (!found) {
        candidates.push_back(i);
      } else if (found == BlockReason::reserved) {
        blockers.push_back({occupancies_[i].gpu->uuid, *found, {}, reservation_->ticket()});
      } else {
        blockers.push_back({occupancies_[i].gpu->uuid, *found, lease_ids(occupancies_[i]), ""});
      }
    }
    return candidates;
  }

  // Whether even the smallest possible request could not be granted this GPU any more.
  bool is_closed(std::size_t i) const {
    static const std::string kNoId;
    return !schedule::has_room(occupancies_[i]) ||
           is_reserved(i, {&kNoId, Bytes{1}, input_.now + kMinRunTime});
  }

  // The part that the ticket would take of each of its GPUs.
  Allocation allocation_for(const QueuedTicket& ticket) const {
    constexpr std::chrono::nanoseconds kMaxRunTime = std::chrono::hours(24 * 365 * 100);
    std::optional<TimePoint> ends;
    if (ticket.request.time) {
      ends = input_.now + std::clamp(*ticket.request.time, kMinRunTime, kMaxRunTime);
    }
    return {&ticket.id, ticket.request.memory, ends};
  }

  static std::vector<std::string> lease_ids(const GpuOccupancy& occupancy) {
    std::vector<std::string> ids;
    for (const Allocation& allocation : occupancy.allocations()) ids.push_back(*allocation.id);
    return ids;
  }

  Grant grant(const QueuedTicket& ticket, const std::vector<std::size_t>& candidates) {
    const std::uint64_t seed = input_.seed ^ std::hash<std::string>{}(ticket.id);
    const auto chosen = schedule::choose_gpus(occupancies_, candidates, ticket.request.count,
                                              ticket.request.policy, input_.closeness, seed);
    Grant grant;
    for (const std::size_t i : chosen) {
      occupancies_[i].add(allocation_for(ticket));
      grant.uuids.push_back(occupancies_[i].gpu->uuid);
      if (is_closed(i)) std::erase(open_gpus_, i);
    }
    return grant;
  }

  const PlanInput& input_;
  std::vector<GpuOccupancy> occupancies_;
  std::vector<std::size_t> open_gpus_;  // GPUs that a later ticket may be granted, in their order
  std::optional<Reservation> reservation_;
  std::map<std::string, std::string> profiled_by_;  // job -> lease or ticket that measures it
  DominanceCache possible_{[](const Request& known, const Request& asked) {
    return schedule::is_no_stricter(asked, known);
  }};
  DominanceCache refused_{schedule::is_no_stricter};
};

Planner::Planner(const PlanInput& input) : state_(std::make_unique<State>(input)) {}
Planner::Planner(Planner&&) noexcept = default;
Planner& Planner::operator=(Planner&&) noexcept = default;
Planner::~Planner() = default;

Outcome Planner::decide(const QueuedTicket& ticket, Explain explain) {
  return state_->decide(ticket, explain);
}

bool Planner::is_possible(const Request& request) {
  return !state_->find_impossible(request);
}

bool Planner::can_leave_out(const QueuedTicket& ticket) {
  return state_->can_leave_out(ticket);
}

bool Planner::is_exhausted() const {
  return state_->is_exhausted();
}

std::vector<Outcome> plan(const PlanInput& input) {
  Planner planner(input);
  std::vector<Outcome> outcomes;
  outcomes.reserve(input.tickets.size());
  for (const QueuedTicket& ticket : input.tickets) outcomes.push_back(planner.decide(ticket));
  return outcomes;
}

}  // namespace berth
