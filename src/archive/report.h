// Sums up the leases of a period: GPU-hours, occupancy, utilization, idle time, energy and waiting
// time, by user, job, GPU and day.
//
// Pure: it reads no clock, no file and no time zone. docs/history.md says what is counted, and how.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "archive/card_time.h"
#include "archive/lease_table.h"

namespace berth {

// The quantities that grow with time, in GPU-hours: the amount of one lease per hour, or a sum.
struct Amounts {
  double gpu_hours = 0;             // of exclusive leases
  double shared_gpu_hours = 0;      // of leases that share a GPU
  double shared_gib_hours = 0;      // the memory that these reserved, in GiB-hours
  double utilized = 0;              // measured GPU-hours times their utilization (0 to 1)
  double utilization_measured = 0;  // GPU-hours whose utilization was measured
  double idle = 0;                  // of exclusive leases
  double idle_measured = 0;         // GPU-hours of exclusive leases whose idle time was measured

  void add(const Amounts& other, double factor = 1);
};

struct WaitTimes {
  double median_s = 0;
  double p95_s = 0;
  double longest_s = 0;
};

struct Figures : Amounts {
  std::size_t leases = 0;
  std::size_t running = 0;
  std::size_t lost = 0;
  std::optional<WaitTimes> waits;  // absent if no lease was granted in the period
  CardTime cards;                  // what of a shared card falls to each of its leases
  double occupied_hours =
      0;  // the part of cards.recorded_hours on the GPUs of ReportQuery::present
  double capacity_hours = 0;  // the time of these GPUs, leased or not; 0: unknown

  double held_hours() const { return gpu_hours + shared_gpu_hours; }
  // nullopt if the GPUs are not known.
  std::optional<double> occupancy_pct() const;
  // nullopt if it was not measured.
  std::optional<double> energy_kwh() const;
  std::optional<double> utilization_pct() const;
  std::optional<double> idle_pct() const;
};

template <class Key>
struct ReportGroup {
  Key key;
  Figures figures;
};

struct IdleLease {
  LeaseOwner owner;
  std::string job;
  LeaseText text;
  std::vector<GpuIdentity> gpus;
  bool exclusive = true;
  TimePoint granted;
  std::chrono::milliseconds lasted{};
  std::chrono::milliseconds idle{};
};

struct Report {
  TimePoint since;
  TimePoint until;
  TimePoint recorded_since;   // when capacity_hours begins
  std::size_t gpu_count = 0;  // the number of GPUs in capacity_hours
  Figures total;
  std::size_t nested = 0;  // leases that are a part of others; only those are counted
  std::vector<ReportGroup<LeaseOwner>> users;  // of all hosts; the most hours first
  std::vector<ReportGroup<std::string>> jobs;  // the most hours first
  std::vector<ReportGroup<GpuIdentity>> gpus;  // sorted by is_listed_before()
  std::vector<ReportGroup<TimePoint>> days;    // by midnight, from the first day with a lease on
  std::vector<IdleLease> idle;                 // a few, those with the most idle GPU time first
};

struct ReportQuery {
  TimePoint since;
  TimePoint now;
  // The local midnights, from the one before `since` (or the first grant) to the one after `now`.
  std::vector<TimePoint> midnights;
  // When the recording of leases began; the time before does not count for the occupancy. Absent:
  // with the first lease.
  std::optional<TimePoint> history_start{};
  // The GPUs that there are now. Empty: unknown, and so is the occupancy.
  std::vector<GpuIdentity> present{};
  // Which GPUs to include; empty: all.
  std::function<bool(std::string_view uuid, std::string_view index)> includes_gpu;
};

Report make_report(const LeaseTable& table, const ReportQuery& query);

}  // namespace berth
