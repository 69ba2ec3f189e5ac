// The decision; see plan.h.
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
using schedule::GpuOccupancy;
using schedule::DominanceCache;
using schedule::Unknown;

constexpr std::chrono::nanoseconds kShortest(1);  // nothing ends at the moment when it begins

// What the first ticket that cannot be granted needs of each GPU, so that nobody delays it.
class Reservation {
 public:
  Reservation(const QueuedTicket& ticket, const std::vector<GpuOccupancy>& places, TimePoint now)
      : ticket_(ticket), now_(now), earliest_(places.size()), chosen_(places.size(), false) {
    std::vector<TimePoint> possible;
    std::vector<std::pair<TimePoint, std::size_t>> certain;
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (!wants(*places[i].gpu)) continue;
      earliest_[i] = available_from(places[i], ticket.request, now, Unknown::ends_now);
      if (earliest_[i]) possible.push_back(*earliest_[i]);
      if (const auto time = available_from(places[i], ticket.request, now, Unknown::never_ends)) {
        certain.emplace_back(*time, i);
      }
    }
    const std::size_t count = ticket.request.count;
    const auto first_ones = static_cast<std::ptrdiff_t>(count);
    starts_at_best_ = now;
    if (possible.size() >= count) {
      std::nth_element(possible.begin(), possible.begin() + first_ones - 1, possible.end());
      starts_at_best_ = possible[count - 1];
    }
    if (certain.size() < count) return;
    std::partial_sort(certain.begin(), certain.begin() + first_ones, certain.end());
    starts_ = certain[count - 1].first;
    for (std::size_t i = 0; i < count; ++i) chosen_[certain[i].second] = true;
  }

  const std::string& ticket() const { return ticket_.id; }

  // When it will start, if the leases in its way say when they end.
  std::optional<TimePoint> starts() const { return starts_; }

  // May a later ticket have this GPU?
  bool allows(std::size_t i, const GpuOccupancy& place, const Allocation& later) const {
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
    places_.reserve(input.gpus.size());
    // Looked up, since GPUs times leases is too many comparisons for a large server.
    std::unordered_multimap<std::string_view, std::size_t> positions(input.gpus.size());
    for (const GpuCondition& gpu : input.gpus) {
      positions.emplace(gpu.uuid, places_.size());
      places_.emplace_back(gpu);
    }
    for (const HeldLease& lease : input.leases) {
      if (!lease.profiles.empty()) profiled_by_.emplace(lease.profiles, lease.id);
      Allocation holding{&lease.id, lease.memory, lease.ends};
      if (lease.memory) holding.memory = std::max(*lease.memory, lease.observed);
      for (const std::string& uuid : lease.uuids) {
        const auto [first, last] = positions.equal_range(uuid);
        for (auto found = first; found != last; ++found) {
          GpuOccupancy& place = places_[found->second];
          const auto& held = place.holdings();
          // A record may name a GPU twice.
          const bool repeated = !held.empty() && held.back().id == holding.id;
          if (!repeated) place.add(holding);
        }
      }
    }
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (schedule::open(places_[i])) open_.push_back(i);
    }
  }

  bool exhausted() const { return open_.empty(); }

  Outcome decide(const QueuedTicket& ticket, Explain explain) {
    Outcome outcome;
    outcome.ticket = ticket.id;
    outcome.impossible = find_impossible(ticket.request);
    if (outcome.impossible) return outcome;
    outcome.wait.emplace();
    if (const auto measured = profiled_by_.find(ticket.profiles); measured != profiled_by_.end()) {
      outcome.wait->profiled_by = measured->second;
      return outcome;
    }
    if (!ticket.profiles.empty() && !ticket.stopped) {
      profiled_by_.emplace(ticket.profiles, ticket.id);
    }
    // The first to wait reserves, whatever is known.
    if (explain == Explain::no && reservation_ && refused_.covers(ticket.request)) return outcome;
    const auto candidates =
        explain == Explain::yes ? available(ticket, outcome.wait->obstacles) : available(ticket);
    outcome.wait->available = candidates.size();
    const bool enough = candidates.size() >= ticket.request.count;
    if (enough && !ticket.stopped) {
      outcome.wait.reset();
      outcome.grant = grant(ticket, candidates);
      return outcome;
    }
    outcome.wait->passed_over = enough;
    if (!enough) refuse(ticket.request);
    if (!ticket.stopped && !reservation_) {
      reservation_.emplace(ticket, places_, input_.now);
      outcome.wait->starts = reservation_->starts();
      std::erase_if(open_, [this](std::size_t i) { return closed(i); });
    }
    return outcome;
  }

 private:
  std::optional<Impossible> find_impossible(const Request& request) {
    if (possible_.covers(request)) return std::nullopt;
    Impossible found;
    for (const GpuOccupancy& place : places_) {
      if (!schedule::matches(*place.gpu, request)) continue;
      ++found.matching;
      found.largest = std::max(found.largest, place.gpu->memory.value_or(Bytes{}));
      if (schedule::large_enough(*place.gpu, request)) ++found.large_enough;
    }
    if (found.large_enough < request.count) return found;
    Request possible = request;
    possible.time.reset();  // possible, however long it runs
    possible_.add(std::move(possible));
    return std::nullopt;
  }

  // While tickets are granted, places only fill up: who was refused, and whoever asks for as much,
  // need not be looked at again.
  void refuse(const Request& request) {
    Request refused = request;
    // Without a reservation the run time was no reason.
    if (!reservation_) refused.time = std::chrono::nanoseconds::zero();
    refused_.add(std::move(refused));
  }

  static bool would_do(const GpuOccupancy& place, const Request& request) {
    return schedule::matches(*place.gpu, request) && schedule::large_enough(*place.gpu, request);
  }

  bool reserved(std::size_t i, const Allocation& wanted) const {
    return reservation_ && !reservation_->allows(i, places_[i], wanted);
  }

  // What keeps the ticket from a GPU that would do.
  std::optional<BlockReason> hindrance(std::size_t i, const QueuedTicket& ticket) const {
    if (const auto found = schedule::hindrance(places_[i], ticket.request)) return found;
    return reserved(i, holding_of(ticket)) ? std::optional(BlockReason::reserved) : std::nullopt;
  }

  // The GPUs that the ticket could have now.
  std::vector<std::size_t> available(const QueuedTicket& ticket) const {
    std::vector<std::size_t> candidates;
    for (const std::size_t i : open_) {
      if (would_do(places_[i], ticket.request) && !hindrance(i, ticket)) candidates.push_back(i);
    }
    return candidates;
  }

  // The same; what is in the way at the others goes into `obstacles`.
  std::vector<std::size_t> available(const QueuedTicket& ticket,
                                     std::vector<Blocker>& obstacles) const {
    std::vector<std::size_t> candidates;
    obstacles.reserve(places_.size());
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (!would_do(places_[i], ticket.request)) continue;
      const auto found = hindrance(i, ticket);
      if (!found) {
        candidates.push_back(i);
      } else if (found == BlockReason::reserved) {
        obstacles.push_back({places_[i].gpu->uuid, *found, {}, reservation_->ticket()});
      } else {
        obstacles.push_back({places_[i].gpu->uuid, *found, holders(places_[i]), ""});
      }
    }
    return candidates;
  }

  // Can nobody have anything of this place any more, however little it asks for?
  bool closed(std::size_t i) const {
    static const std::string kNobody;
    return !schedule::open(places_[i]) || reserved(i, {&kNobody, Bytes{1}, input_.now + kShortest});
  }

  // What the ticket would take up on each of its GPUs.
  Allocation holding_of(const QueuedTicket& ticket) const {
    constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(24 * 365 * 100);
    std::optional<TimePoint> ends;
    if (ticket.request.time) {
      ends = input_.now + std::clamp(*ticket.request.time, kShortest, kLongest);
    }
    return {&ticket.id, ticket.request.memory, ends};
  }

  static std::vector<std::string> holders(const GpuOccupancy& place) {
    std::vector<std::string> ids;
    for (const Allocation& holding : place.holdings()) ids.push_back(*holding.id);
    return ids;
  }

  Grant grant(const QueuedTicket& ticket, const std::vector<std::size_t>& candidates) {
    const std::uint64_t seed = input_.seed ^ std::hash<std::string>{}(ticket.id);
    const auto chosen = schedule::choose(places_, candidates, ticket.request.count,
                                         ticket.request.policy, input_.closeness, seed);
    Grant grant;
    for (const std::size_t i : chosen) {
      places_[i].add(holding_of(ticket));
      grant.uuids.push_back(places_[i].gpu->uuid);
      if (closed(i)) std::erase(open_, i);
    }
    return grant;
  }

  const PlanInput& input_;
  std::vector<GpuOccupancy> places_;
  std::vector<std::size_t> open_;  // the places that some ticket could have, in their order
  std::optional<Reservation> reservation_;
  std::map<std::string, std::string> profiled_by_;
  DominanceCache possible_{[](const Request& known, const Request& asked) {
    return schedule::asks_no_more(asked, known);
  }};
  DominanceCache refused_{schedule::asks_no_more};
};

Planner::Planner(const PlanInput& input) : state_(std::make_unique<State>(input)) {}
Planner::Planner(Planner&&) noexcept = default;
Planner& Planner::operator=(Planner&&) noexcept = default;
Planner::~Planner() = default;

Outcome Planner::decide(const QueuedTicket& ticket, Explain explain) {
  return state_->decide(ticket, explain);
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
