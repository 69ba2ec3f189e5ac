// A timeline: which user held each GPU when, in the resolution of a chart.
//
// Pure: it reads no clock, no file and no time zone.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "archive/lease_table.h"

namespace berth {

// A period in which a user held a GPU, or a share of it. Spans of several users overlap if they
// shared the GPU, or took turns faster than the resolution.
struct TimelineSpan {
  LeaseOwner owner;
  TimePoint start;
  TimePoint end;
  std::size_t leases = 0;  // the number of leases in the span
  bool shared = false;     // at least one of them shared the GPU
};

struct TimelineGpu {
  GpuIdentity gpu;  // with its latest index and name
  std::vector<TimelineSpan> spans;
};

struct Timeline {
  TimePoint since;
  TimePoint until;
  std::chrono::seconds resolution{};
  std::vector<TimelineGpu> gpus;  // sorted by is_listed_before()
  bool truncated = false;         // spans, or GPUs that are not present, are left out
};

struct TimelineQuery {
  TimePoint since;
  TimePoint until;
  // The host of leases and GPUs whose host is empty in the table.
  std::string this_host;
  // GPUs to show even if they have no leases, with their present hosts, indices and names.
  std::vector<GpuIdentity> present;
  std::chrono::seconds resolution{};  // 0: timeline_resolution()
};

// The default resolution: a 720th of the period. A chart of usual width cannot show less.
std::chrono::seconds timeline_resolution(TimePoint since, TimePoint until);

// Spans of one user with a gap shorter than the resolution are merged, unless both are so long that
// a chart shows them as blocks of their own. A GPU has at most 400 spans: if there are more, the
// resolution is coarser for that GPU. The GPUs of TimelineQuery::present have equal shares of
// kMaxTimelineSpans and come first: any user can invent others in their history, so only some of
// these are in the result. Running leases end at `until`. Leases that are a part of another are
// left out, since the other one has the GPU.
constexpr std::size_t kMaxTimelineSpans = 20'000;
constexpr std::size_t kMaxFormerGpus = 200;  // GPUs that are not present
Timeline make_timeline(const LeaseTable& table, const TimelineQuery& query);

}  // namespace berth
