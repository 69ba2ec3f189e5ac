// Leases to spans; see timeline.h.
#include "archive/timeline.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

namespace berth {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMostSpans = 400;
constexpr std::int64_t kSteps = 720;

// Times are milliseconds since 1970.
struct Stretch {
  std::uint32_t user = 0;  // an owner that is the same user
  std::int64_t start = 0;
  std::int64_t end = 0;
  std::size_t leases = 1;
  bool shared = false;
};

struct Row {
  KnownGpu gpu;
  std::int64_t named_ms = -1;  // when it had that name
  std::vector<Stretch> stretches;
};

// "10" behind "9", and "0:1" (MIG) behind "0".
std::pair<unsigned, std::string_view> card_of(std::string_view index) {
  unsigned card = ~0U;
  const auto [rest, problem] = std::from_chars(index.data(), index.data() + index.size(), card);
  return {card, index.substr(static_cast<std::size_t>(rest - index.data()))};
}

bool by_user(const Stretch& a, const Stretch& b) {
  return std::tuple(a.user, a.start, a.end) < std::tuple(b.user, b.start, b.end);
}

// Of stretches in the order of by_user().
std::vector<Stretch> merged(const std::vector<Stretch>& stretches, std::int64_t resolution_ms) {
  std::vector<Stretch> out;
  for (const Stretch& next : stretches) {
    if (out.empty() || out.back().user != next.user ||
        next.start - out.back().end >= resolution_ms) {
      out.push_back(next);
      continue;
    }
    Stretch& last = out.back();
    last.end = std::max(last.end, next.end);
    last.leases += next.leases;
    last.shared = last.shared || next.shared;
  }
  return out;
}

// So many users as there are spans allowed can only be bounded by leaving the shortest out.
void keep_longest(std::vector<Stretch>& stretches) {
  if (stretches.size() <= kMostSpans) return;
  std::nth_element(
      stretches.begin(), stretches.begin() + kMostSpans, stretches.end(),
      [](const Stretch& a, const Stretch& b) { return a.end - a.start > b.end - b.start; });
  stretches.resize(kMostSpans);
}

class Drawing {
 public:
  Drawing(const LeaseTable& table, const TimelineQuery& query);
  void add(const CompactLease& lease);
  Timeline finish();

 private:
  const std::string& host_of(const KnownGpu& gpu) const {
    return gpu.host.empty() ? query_.this_host : gpu.host;
  }
  std::size_t row_of(const KnownGpu& gpu);
  std::vector<TimelineSpan> spans_of(std::vector<Stretch>& stretches) const;

  const LeaseTable& table_;
  const TimelineQuery& query_;
  std::int64_t since_;
  std::int64_t until_;
  std::int64_t resolution_ms_ = 0;
  std::map<std::pair<std::string, std::string>, std::size_t> places_;  // by host and UUID
  std::vector<Row> rows_;
  std::vector<std::size_t> row_of_gpu_;  // of the GPUs' names in the table
  std::vector<std::uint32_t> user_of_;   // of each owner, the first that is the same user
  Timeline timeline_;
};

Drawing::Drawing(const LeaseTable& table, const TimelineQuery& query)
    : table_(table), query_(query), since_(to_ms(query.since)), until_(to_ms(query.until)) {
  timeline_.since = query.since;
  timeline_.until = query.until;
  timeline_.resolution = query.resolution.count() > 0
                             ? query.resolution
                             : timeline_resolution(query.since, query.until);
  resolution_ms_ = milliseconds(timeline_.resolution).count();
  for (const KnownGpu& gpu : query.present) rows_[row_of(gpu)].named_ms = INT64_MAX;
  for (const KnownGpu& gpu : table.gpus()) row_of_gpu_.push_back(row_of(gpu));
  std::map<std::pair<uid_t, std::string_view>, std::uint32_t> users;
  for (const LeaseOwner& owner : table.owners()) {
    const auto next = static_cast<std::uint32_t>(user_of_.size());
    const uid_t uid = owner.user.empty() ? owner.uid : 0;  // which is another on each host
    user_of_.push_back(users.try_emplace({uid, owner.user}, next).first->second);
  }
}

std::size_t Drawing::row_of(const KnownGpu& gpu) {
  const auto [place, is_new] = places_.try_emplace({host_of(gpu), gpu.uuid}, rows_.size());
  if (is_new) {
    rows_.push_back({gpu, -1, {}});
    rows_.back().gpu.host = host_of(gpu);
  }
  return place->second;
}

void Drawing::add(const CompactLease& lease) {
  const std::int64_t end =
      lease.ending == Ending::running ? until_ : std::min(lease.ended_ms, until_);
  if (lease.nested || end < since_ || lease.granted_ms > until_) return;
  const std::int64_t start = std::max(lease.granted_ms, since_);
  for (const LeasedGpu& use : table_.uses(lease)) {
    Row& row = rows_[row_of_gpu_[use.gpu]];
    row.stretches.push_back(
        {user_of_[lease.owner], start, std::max(start, end), 1, !lease.exclusive()});
    // The harbour knows no names.
    const KnownGpu& named = table_.gpus()[use.gpu];
    if (!named.index.empty() && lease.granted_ms > row.named_ms) {
      row.gpu.index = named.index;
      row.gpu.name = named.name;
      row.named_ms = lease.granted_ms;
    }
  }
}

std::vector<TimelineSpan> Drawing::spans_of(std::vector<Stretch>& stretches) const {
  std::sort(stretches.begin(), stretches.end(), by_user);
  std::int64_t resolution = resolution_ms_;
  std::vector<Stretch> few = merged(stretches, resolution);
  while (few.size() > kMostSpans && resolution <= until_ - since_) {
    resolution *= 2;
    few = merged(few, resolution);
  }
  keep_longest(few);
  std::sort(few.begin(), few.end(), [](const Stretch& a, const Stretch& b) {
    return std::tuple(a.start, a.end, a.user) < std::tuple(b.start, b.end, b.user);
  });
  std::vector<TimelineSpan> spans;
  spans.reserve(few.size());
  for (const Stretch& one : few) {
    spans.push_back({table_.owners()[one.user], TimePoint(milliseconds(one.start)),
                     TimePoint(milliseconds(one.end)), one.leases, one.shared});
  }
  return spans;
}

Timeline Drawing::finish() {
  for (Row& row : rows_) {
    // One that only the past had, and not this one, is nobody's to show.
    if (row.stretches.empty() && row.named_ms < 0) continue;
    timeline_.gpus.push_back({std::move(row.gpu), spans_of(row.stretches)});
  }
  std::sort(timeline_.gpus.begin(), timeline_.gpus.end(),
            [](const TimelineGpu& a, const TimelineGpu& b) {
              return std::tuple(a.gpu.host, card_of(a.gpu.index), a.gpu.uuid) <
                     std::tuple(b.gpu.host, card_of(b.gpu.index), b.gpu.uuid);
            });
  return std::move(timeline_);
}

}  // namespace

std::chrono::seconds timeline_resolution(TimePoint since, TimePoint until) {
  const auto whole = std::chrono::ceil<std::chrono::seconds>(until - since);
  return std::max(std::chrono::seconds(1), whole / kSteps);
}

Timeline make_timeline(const LeaseTable& table, const TimelineQuery& query) {
  Drawing drawing(table, query);
  for (const CompactLease& lease : table.leases()) drawing.add(lease);
  return drawing.finish();
}

}  // namespace berth
