// Merges leases into spans; see timeline.h.
#include "archive/timeline.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

namespace berth {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMaxSpansOfGpu = 400;
constexpr std::int64_t kDefaultSteps = 720;

// Times are milliseconds since 1970.
struct Interval {
  std::uint32_t user = 0;  // an index of LeaseTable::owners(), the same for all owners of one user
  std::int64_t start = 0;
  std::int64_t end = 0;
  std::size_t leases = 1;
  bool shared = false;
};

struct TimelineRow {
  GpuIdentity gpu;
  std::int64_t named_ms = -1;  // when it had that name; -1: unknown
  bool is_present = false;     // in TimelineQuery::present
  std::vector<Interval> intervals;
};

bool is_before_by_user(const Interval& a, const Interval& b) {
  return std::tuple(a.user, a.start, a.end) < std::tuple(b.user, b.start, b.end);
}

// Whether a chart shows both, one after the other, as blocks of their own.
bool are_separate_blocks(const Interval& one, const Interval& next, std::int64_t resolution_ms) {
  constexpr std::int64_t kBlockSteps = 8;
  const auto is_block = [&](const Interval& interval) {
    return interval.end - interval.start >= kBlockSteps * resolution_ms;
  };
  return next.start >= one.end && is_block(one) && is_block(next);
}

// `intervals` are sorted by is_before_by_user().
std::vector<Interval> merge_intervals(const std::vector<Interval>& intervals,
                                      std::int64_t resolution_ms) {
  std::vector<Interval> result;
  for (const Interval& next : intervals) {
    if (result.empty() || result.back().user != next.user ||
        next.start - result.back().end >= resolution_ms ||
        are_separate_blocks(result.back(), next, resolution_ms)) {
      result.push_back(next);
      continue;
    }
    Interval& last = result.back();
    last.end = std::max(last.end, next.end);
    last.leases += next.leases;
    last.shared = last.shared || next.shared;
  }
  return result;
}

// Leaves out the shortest intervals.
void drop_shortest(std::vector<Interval>& intervals, std::size_t max_count) {
  if (intervals.size() <= max_count) return;
  std::nth_element(intervals.begin(), intervals.begin() + static_cast<std::ptrdiff_t>(max_count),
                   intervals.end(), [](const Interval& a, const Interval& b) {
                     return a.end - a.start > b.end - b.start;
                   });
  intervals.resize(max_count);
}

class TimelineBuilder {
 public:
  TimelineBuilder(const LeaseTable& table, const TimelineQuery& query);
  void add(const CompactLease& lease);
  Timeline finish();

 private:
  const std::string& gpu_host(const GpuIdentity& gpu) const {
    return gpu.host.empty() ? query_.this_host : gpu.host;
  }
  std::size_t find_row(const GpuIdentity& gpu);
  std::vector<TimelineSpan> make_spans(std::vector<Interval>& intervals, std::size_t max_count);
  void add_row(TimelineRow& row, std::size_t max_spans);

  const LeaseTable& table_;
  const TimelineQuery& query_;
  std::int64_t since_;
  std::int64_t until_;
  std::int64_t resolution_ms_ = 0;
  std::map<std::pair<std::string, std::string>, std::size_t> row_positions_;  // by host and UUID
  std::vector<TimelineRow> rows_;
  std::vector<std::size_t> row_by_gpu_;       // parallel to LeaseTable::gpus()
  std::vector<std::uint32_t> user_by_owner_;  // see LeaseTable::find_users_of_owners()
  Timeline timeline_;
};

TimelineBuilder::TimelineBuilder(const LeaseTable& table, const TimelineQuery& query)
    : table_(table),
      query_(query),
      since_(to_ms(query.since)),
      until_(to_ms(query.until)),
      user_by_owner_(table.find_users_of_owners()) {
  timeline_.since = query.since;
  timeline_.until = query.until;
  timeline_.resolution = query.resolution.count() > 0
                             ? query.resolution
                             : timeline_resolution(query.since, query.until);
  resolution_ms_ = milliseconds(timeline_.resolution).count();
  for (const GpuIdentity& gpu : query.present) {
    TimelineRow& row = rows_[find_row(gpu)];
    row.named_ms = INT64_MAX;
    row.is_present = true;
  }
  for (const GpuIdentity& gpu : table.gpus()) row_by_gpu_.push_back(find_row(gpu));
}

std::size_t TimelineBuilder::find_row(const GpuIdentity& gpu) {
  const auto [position, is_new] =
      row_positions_.try_emplace({gpu_host(gpu), gpu.uuid}, rows_.size());
  if (is_new) {
    rows_.push_back({gpu, -1, false, {}});
    rows_.back().gpu.host = gpu_host(gpu);
  }
  return position->second;
}

void TimelineBuilder::add(const CompactLease& lease) {
  const std::int64_t end =
      lease.ending == Ending::running ? until_ : std::min(lease.ended_ms, until_);
  if (lease.nested || end < since_ || lease.granted_ms > until_) return;
  const std::int64_t start = std::max(lease.granted_ms, since_);
  for (const LeasedGpu& use : table_.uses(lease)) {
    TimelineRow& row = rows_[row_by_gpu_[use.gpu]];
    row.intervals.push_back(
        {user_by_owner_[lease.owner], start, std::max(start, end), 1, !lease.exclusive()});
    // Leases from the harbour have no index and name.
    const GpuIdentity& named = table_.gpus()[use.gpu];
    if (!named.index.empty() && lease.granted_ms > row.named_ms) {
      row.gpu.index = named.index;
      row.gpu.name = named.name;
      row.named_ms = lease.granted_ms;
    }
  }
}

std::vector<TimelineSpan> TimelineBuilder::make_spans(std::vector<Interval>& intervals,
                                                      std::size_t max_count) {
  std::sort(intervals.begin(), intervals.end(), is_before_by_user);
  std::int64_t resolution = resolution_ms_;
  std::vector<Interval> merged = merge_intervals(intervals, resolution);
  while (merged.size() > max_count && resolution <= until_ - since_) {
    resolution *= 2;
    merged = merge_intervals(merged, resolution);
  }
  // With more users than spans, merging is not enough.
  timeline_.truncated = timeline_.truncated || merged.size() > max_count;
  drop_shortest(merged, max_count);
  std::sort(merged.begin(), merged.end(), [](const Interval& a, const Interval& b) {
    return std::tuple(a.start, a.end, a.user) < std::tuple(b.start, b.end, b.user);
  });
  std::vector<TimelineSpan> spans;
  spans.reserve(merged.size());
  for (const Interval& interval : merged) {
    spans.push_back({table_.owners()[interval.user], TimePoint(milliseconds(interval.start)),
                     TimePoint(milliseconds(interval.end)), interval.leases, interval.shared});
  }
  return spans;
}

void TimelineBuilder::add_row(TimelineRow& row, std::size_t max_spans) {
  timeline_.gpus.push_back({std::move(row.gpu), make_spans(row.intervals, max_spans)});
}

Timeline TimelineBuilder::finish() {
  const auto present = static_cast<std::size_t>(std::count_if(
      rows_.begin(), rows_.end(), [](const TimelineRow& row) { return row.is_present; }));
  const std::size_t share = kMaxTimelineSpans / std::max<std::size_t>(present, 1);
  std::size_t rest = kMaxTimelineSpans;
  for (TimelineRow& row : rows_) {
    if (!row.is_present) continue;
    add_row(row, std::clamp<std::size_t>(share, 1, kMaxSpansOfGpu));
    rest -= std::min(rest, timeline_.gpus.back().spans.size());
  }
  for (TimelineRow& row : rows_) {
    // A GPU that is not present and has no lease in this period is left out.
    if (row.is_present || row.intervals.empty()) continue;
    if (rest == 0 || timeline_.gpus.size() == present + kMaxFormerGpus) {
      timeline_.truncated = true;
      break;
    }
    add_row(row, std::min(rest, kMaxSpansOfGpu));
    rest -= timeline_.gpus.back().spans.size();
  }
  std::sort(
      timeline_.gpus.begin(), timeline_.gpus.end(),
      [](const TimelineGpu& a, const TimelineGpu& b) { return is_listed_before(a.gpu, b.gpu); });
  return std::move(timeline_);
}

}  // namespace

std::chrono::seconds timeline_resolution(TimePoint since, TimePoint until) {
  const auto whole = std::chrono::ceil<std::chrono::seconds>(until - since);
  return std::max(std::chrono::seconds(1), whole / kDefaultSteps);
}

Timeline make_timeline(const LeaseTable& table, const TimelineQuery& query) {
  TimelineBuilder builder(table, query);
  for (const CompactLease& lease : table.leases()) builder.add(lease);
  return builder.finish();
}

}  // namespace berth
