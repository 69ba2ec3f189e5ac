// How long cards were leased, and the energy that they drew meanwhile. Leases that share a card
// divide its time and energy between them, so that each is counted once.
//
// Pure: it reads no clock and no file.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace berth {

constexpr double kMsPerHour = 3'600'000;

// A sum over cards and time. Time is in hours.
struct CardTime {
  double hours = 0;           // at least one lease was on the card
  double recorded_hours = 0;  // the part of `hours` since the recording began
  double energy_kwh = 0;      // drawn in `measured_hours`
  double measured_hours = 0;  // the part of `hours` in which the power was measured

  void add(const CardTime& other, double factor = 1);
};

// A lease on one card. Times are milliseconds since 1970.
struct CardLease {
  std::int64_t begin_ms = 0;
  std::int64_t end_ms = 0;
  std::int32_t power_mw = -1;  // the average power of the whole card during the lease; -1: unknown
};

// Calls `on_interval` for each time in which the same leases are on the card, in order; `per_hour`
// is the card's time and energy in an hour of it. Where several leases measured the power, their
// mean counts. Returns the share of each lease, parallel to `leases`: at each moment, the leases on
// the card have equal shares of its time. The energy of a share is by the lease's own measurement,
// so that another user cannot change it by a false one; for a lease without, by the mean.
using CardInterval =
    std::function<void(std::int64_t begin_ms, std::int64_t end_ms, const CardTime& per_hour)>;
std::vector<CardTime> divide_card_time(const std::vector<CardLease>& leases,
                                       std::int64_t recorded_since_ms,
                                       const CardInterval& on_interval);

}  // namespace berth
