// The decision; see plan.h.
#include "schedule/plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "schedule/choose.h"
#include "schedule/match.h"

namespace berth {
namespace {

using schedule::Holding;
using schedule::Place;
using schedule::Unknown;

// What the first ticket that cannot be granted needs of each GPU, so that nobody delays it.
class Reservation {
 public:
  Reservation(const QueuedTicket& ticket, const std::vector<Place>& places, TimePoint now)
      : ticket_(ticket), now_(now), earliest_(places.size()), chosen_(places.size(), false) {
    std::vector<std::pair<TimePoint, std::size_t>> possible;
    std::vector<std::pair<TimePoint, std::size_t>> certain;
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (!wants(*places[i].gpu)) continue;
      earliest_[i] = available_from(places[i], ticket.request, now, Unknown::ends_now);
      if (earliest_[i]) possible.emplace_back(*earliest_[i], i);
      if (const auto time = available_from(places[i], ticket.request, now, Unknown::never_ends)) {
        certain.emplace_back(*time, i);
      }
    }
    const std::size_t count = ticket.request.count;
    std::sort(possible.begin(), possible.end());
    std::sort(certain.begin(), certain.end());
    starts_at_best_ = possible.size() >= count ? possible[count - 1].first : now;
    if (certain.size() < count) return;
    starts_ = certain[count - 1].first;
    for (std::size_t i = 0; i < count; ++i) chosen_[certain[i].second] = true;
  }

  const std::string& ticket() const { return ticket_.id; }

  // When it will start, if the leases in its way say when they end.
  std::optional<TimePoint> starts() const { return starts_; }

  // May a later ticket have this GPU?
  bool allows(std::size_t i, const Place& place, const Holding& later) const {
    if (!earliest_[i]) return true;  // not a GPU for the reservation
    const bool spare = starts_ && !chosen_[i] && *earliest_[i] >= *starts_;
    return spare || !might_delay(place, later, ticket_.request, starts_at_best_, now_);
  }

 private:
  bool wants(const GpuCondition& gpu) const {
    return schedule::matches(gpu, ticket_.request) && schedule::large_enough(gpu, ticket_.request);
  }

  const QueuedTicket& ticket_;
  TimePoint now_;
  std::vector<std::optional<TimePoint>> earliest_;  // when each GPU could be had, at the very best
  std::vector<bool> chosen_;
  TimePoint starts_at_best_;
  std::optional<TimePoint> starts_;
};

}  // namespace

class Planner::State {
 public:
  explicit State(const PlanInput& input) : input_(input) {
    for (const GpuCondition& gpu : input.gpus) places_.push_back({&gpu, {}});
    for (const HeldLease& lease : input.leases) {
      if (!lease.profiles.empty()) profiled_by_.emplace(lease.profiles, lease.id);
      std::optional<Bytes> memory;
      if (lease.memory) memory = std::max(*lease.memory, lease.observed);
      for (Place& place : places_) {
        const auto& uuids = lease.uuids;
        if (std::find(uuids.begin(), uuids.end(), place.gpu->uuid) != uuids.end()) {
          place.holdings.push_back({lease.id, memory, lease.ends});
        }
      }
    }
  }

  bool exhausted() const {
    Request least;  // what fits if anything does
    least.memory = Bytes{1};
    least.max_processes = ~0U;
    return std::all_of(places_.begin(), places_.end(), [&](const Place& place) {
      if (!place.gpu->memory) return !place.holdings.empty() || !place.gpu->usable;
      return schedule::hindrance(place, least).has_value();
    });
  }

  Outcome decide(const QueuedTicket& ticket) {
    Outcome outcome;
    outcome.ticket = ticket.id;
    outcome.impossible = find_impossible(ticket.request);
    if (outcome.impossible) return outcome;
    Wait wait;
    if (const auto measured = profiled_by_.find(ticket.profiles); measured != profiled_by_.end()) {
      wait.profiled_by = measured->second;
      outcome.wait = std::move(wait);
      return outcome;
    }
    if (!ticket.profiles.empty() && !ticket.stopped) {
      profiled_by_.emplace(ticket.profiles, ticket.id);
    }
    const auto candidates = available(ticket, wait);
    wait.available = candidates.size();
    const bool enough = candidates.size() >= ticket.request.count;
    if (enough && !ticket.stopped) {
      outcome.grant = grant(ticket, candidates);
      return outcome;
    }
    wait.passed_over = enough;
    if (!ticket.stopped && !reservation_) {
      reservation_.emplace(ticket, places_, input_.now);
      wait.starts = reservation_->starts();
    }
    outcome.wait = std::move(wait);
    return outcome;
  }

 private:
  std::optional<Impossible> find_impossible(const Request& request) const {
    Impossible found;
    for (const Place& place : places_) {
      if (!schedule::matches(*place.gpu, request)) continue;
      ++found.matching;
      found.largest = std::max(found.largest, place.gpu->memory.value_or(Bytes{}));
      if (schedule::large_enough(*place.gpu, request)) ++found.large_enough;
    }
    if (found.large_enough >= request.count) return std::nullopt;
    return found;
  }

  // The GPUs that the ticket could have now; what is in the way at the others goes into `wait`.
  std::vector<std::size_t> available(const QueuedTicket& ticket, Wait& wait) const {
    std::vector<std::size_t> candidates;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const Place& place = places_[i];
      const Request& request = ticket.request;
      if (!schedule::matches(*place.gpu, request) || !schedule::large_enough(*place.gpu, request)) {
        continue;
      }
      if (const auto hindrance = schedule::hindrance(place, request)) {
        wait.obstacles.push_back({place.gpu->uuid, *hindrance, holders(place), ""});
      } else if (reservation_ && !reservation_->allows(i, place, holding_of(ticket))) {
        wait.obstacles.push_back(
            {place.gpu->uuid, Hindrance::reserved, {}, reservation_->ticket()});
      } else {
        candidates.push_back(i);
      }
    }
    return candidates;
  }

  // What the ticket would take up on each of its GPUs.
  Holding holding_of(const QueuedTicket& ticket) const {
    constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(24 * 365 * 100);
    std::optional<TimePoint> ends;
    if (ticket.request.time) ends = input_.now + std::min(*ticket.request.time, kLongest);
    return {ticket.id, ticket.request.memory, ends};
  }

  static std::vector<std::string> holders(const Place& place) {
    std::vector<std::string> ids;
    for (const Holding& holding : place.holdings) ids.push_back(holding.id);
    return ids;
  }

  Grant grant(const QueuedTicket& ticket, const std::vector<std::size_t>& candidates) {
    const std::uint64_t seed = input_.seed ^ std::hash<std::string>{}(ticket.id);
    Grant grant;
    for (const std::size_t i : schedule::choose(places_, candidates, ticket.request.count,
                                                ticket.request.policy, input_.closeness, seed)) {
      places_[i].holdings.push_back(holding_of(ticket));
      grant.uuids.push_back(places_[i].gpu->uuid);
    }
    return grant;
  }

  const PlanInput& input_;
  std::vector<Place> places_;
  std::optional<Reservation> reservation_;
  std::map<std::string, std::string> profiled_by_;
};

Planner::Planner(const PlanInput& input) : state_(std::make_unique<State>(input)) {}
Planner::Planner(Planner&&) noexcept = default;
Planner& Planner::operator=(Planner&&) noexcept = default;
Planner::~Planner() = default;

Outcome Planner::decide(const QueuedTicket& ticket) {
  return state_->decide(ticket);
}

bool Planner::exhausted() const {
  return state_->exhausted();
}

std::vector<Outcome> plan(const PlanInput& input) {
  Planner planner(input);
  std::vector<Outcome> outcomes;
  outcomes.reserve(input.tickets.size());
  for (const QueuedTicket& ticket : input.tickets) outcomes.push_back(planner.decide(ticket));
  return outcomes;
}

}  // namespace berth
