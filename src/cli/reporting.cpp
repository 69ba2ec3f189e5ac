// Midnights and reports; see reporting.h.
#include "cli/reporting.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <vector>

#include "base/time_text.h"

namespace berth {
namespace {

// Of this place's clock, from the one before `first` to the one after `last`: a day has 23 hours in
// spring and 25 in autumn.
std::vector<TimePoint> midnights(TimePoint first, TimePoint last) {
  std::vector<TimePoint> times;
  std::tm day = local_parts(first);
  do {
    std::tm midnight{};
    midnight.tm_year = day.tm_year;
    midnight.tm_mon = day.tm_mon;
    midnight.tm_mday = day.tm_mday + static_cast<int>(times.size());
    midnight.tm_isdst = -1;
    times.emplace_back(std::chrono::seconds(std::mktime(&midnight)));
  } while (times.back() <= last);
  return times;
}

}  // namespace

Report reported(const LeaseTable& table, const HistoryOptions& options) {
  ReportQuery query;
  query.since = options.since;
  query.now = std::chrono::system_clock::now();
  std::int64_t first = to_ms(query.now);
  for (const LeaseFacts& lease : table.leases()) first = std::min(first, lease.granted_ms);
  query.midnights =
      midnights(std::max(query.since, TimePoint(std::chrono::milliseconds(first))), query.now);
  if (!options.gpus.empty()) {
    query.wants_gpu = [&options](std::string_view uuid, std::string_view index) {
      return names_gpu(options.gpus, uuid, index);
    };
  }
  return make_report(table, query);
}

}  // namespace berth
