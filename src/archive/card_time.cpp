// Divides the time and energy of a card between its leases; see card_time.h.
#include "archive/card_time.h"

#include <algorithm>
#include <tuple>

namespace berth {
namespace {

constexpr double kMilliwattsPerKilowatt = 1e6;

struct CardEvent {
  std::int64_t ms = 0;
  std::uint32_t lease = 0;
  bool is_end = false;
};

std::vector<CardEvent> sorted_events(const std::vector<CardLease>& leases) {
  std::vector<CardEvent> events;
  events.reserve(2 * leases.size());
  for (std::uint32_t i = 0; i < leases.size(); ++i) {
    events.push_back({leases[i].begin_ms, i, false});
    events.push_back({leases[i].end_ms, i, true});
  }
  // A lease without duration must begin before it ends.
  std::sort(events.begin(), events.end(), [](const CardEvent& a, const CardEvent& b) {
    return std::tuple(a.ms, a.is_end) < std::tuple(b.ms, b.is_end);
  });
  return events;
}

}  // namespace

void CardTime::add(const CardTime& other, double factor) {
  hours += other.hours * factor;
  recorded_hours += other.recorded_hours * factor;
  energy_kwh += other.energy_kwh * factor;
  measured_hours += other.measured_hours * factor;
}

std::vector<CardTime> divide_card_time(const std::vector<CardLease>& leases,
                                       std::int64_t recorded_since_ms,
                                       const CardInterval& on_interval) {
  std::vector<CardTime> shares(leases.size());
  CardTime sum;  // of a lease that is on the card all the time
  std::size_t on_card = 0;
  std::int64_t measured = 0;  // how many leases on the card measured its power
  std::int64_t power_mw = 0;  // the sum of their values
  const auto add_interval = [&](std::int64_t begin, std::int64_t end) {
    if (on_card == 0 || end <= begin) return;
    CardTime per_hour{1, begin >= recorded_since_ms ? 1.0 : 0.0, 0, 0};
    if (measured > 0) {
      per_hour.energy_kwh =
          static_cast<double>(power_mw) / static_cast<double>(measured) / kMilliwattsPerKilowatt;
      per_hour.measured_hours = 1;
    }
    on_interval(begin, end, per_hour);
    sum.add(per_hour, static_cast<double>(end - begin) / kMsPerHour / static_cast<double>(on_card));
  };
  std::int64_t before = 0;
  for (const CardEvent& event : sorted_events(leases)) {
    const std::int64_t middle = std::clamp(recorded_since_ms, before, std::max(before, event.ms));
    add_interval(before, middle);
    add_interval(middle, event.ms);
    before = event.ms;
    const CardLease& lease = leases[event.lease];
    const int change = event.is_end ? -1 : 1;
    shares[event.lease].add(sum, -change);
    on_card = event.is_end ? on_card - 1 : on_card + 1;
    if (lease.power_mw < 0) continue;
    measured += change;
    power_mw += change * std::int64_t{lease.power_mw};
  }
  for (std::size_t i = 0; i < leases.size(); ++i) {
    if (leases[i].power_mw >= 0)
      shares[i].energy_kwh = leases[i].power_mw / kMilliwattsPerKilowatt * shares[i].hours;
  }
  return shares;
}

}  // namespace berth
