// What the leases of a time come to: GPU-hours, waiting, utilization, idleness; by user, job, GPU
// and day. Pure: no clock, no file, no time zone.
//
// docs/history.md says what is counted, and how.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "archive/lease_table.h"

namespace berth {

// All that grows with time, in GPU-hours: what a lease comes to in an hour, or several came to.
struct Amounts {
  double gpu_hours = 0;         // of whole GPUs
  double shared_gpu_hours = 0;  // of GPUs that others may have had a share of
  double shared_gib_hours = 0;  // what was reserved there
  double utilized = 0;          // as if what was measured had been utilized wholly, and then not
  double utilization_measured = 0;
  double idle = 0;  // of whole GPUs
  double idle_measured = 0;

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
  std::optional<WaitTimes> waits;  // nothing if none of them was granted in that time

  double held_hours() const { return gpu_hours + shared_gpu_hours; }
  // Nothing if nothing of it was measured.
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
  Figures total;
  std::size_t nested = 0;  // leases that were carved out of others, and count there
  std::vector<ReportGroup<LeaseOwner>> users;  // who had most first; on whatever host
  std::vector<ReportGroup<std::string>> jobs;  // likewise
  std::vector<ReportGroup<GpuIdentity>> gpus;  // by index
  std::vector<ReportGroup<TimePoint>>
      days;                     // each from its midnight on; from the first that has any
  std::vector<IdleLease> idle;  // the worst
};

struct ReportQuery {
  TimePoint since;
  TimePoint now;
  // The midnights of the place: from the one before `since` (or before the first grant) to the one
  // after `now`.
  std::vector<TimePoint> midnights;
  // Which GPUs count; nothing: all.
  std::function<bool(std::string_view uuid, std::string_view index)> includes_gpu;
};

Report make_report(const LeaseTable& table, const ReportQuery& query);

}  // namespace berth
