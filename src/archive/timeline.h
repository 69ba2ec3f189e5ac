// Who had each GPU when, as far as a picture can show it. Pure: no clock, no file, no time zone.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "archive/lease_table.h"

namespace berth {

// For as long a user had a GPU, or a share of it. Those of several users overlap where they shared
// it, and where they took turns faster than the resolution.
struct TimelineSpan {
  LeaseOwner owner;
  TimePoint start;
  TimePoint end;
  std::size_t leases = 0;  // how many of them it is made of
  bool shared = false;     // at least one of them had not all of the GPU
};

struct TimelineGpu {
  GpuIdentity gpu;  // as it was named last
  std::vector<TimelineSpan> spans;
};

struct Timeline {
  TimePoint since;
  TimePoint until;
  std::chrono::seconds resolution{};
  std::vector<TimelineGpu> gpus;  // by host and index
};

struct TimelineQuery {
  TimePoint since;
  TimePoint until;
  // What is called nothing in the table.
  std::string this_host;
  // These are shown even if nobody had them; with their hosts, and as they are named now.
  std::vector<GpuIdentity> present;
  std::chrono::seconds resolution{};  // 0: timeline_resolution()
};

// What is shorter can be told by no picture of usual width: a 720th.
std::chrono::seconds timeline_resolution(TimePoint since, TimePoint until);

// Spans of one user with less than the resolution between them are one. At most 400 for a GPU:
// where there would be more, it is as if the resolution were coarser.
//
// Leases that run end at `until`. Those that were carved out of another are left out: the other
// has the GPU.
Timeline make_timeline(const LeaseTable& table, const TimelineQuery& query);

}  // namespace berth
