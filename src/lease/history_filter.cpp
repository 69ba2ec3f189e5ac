// Parses and applies filters of the history; see history_filter.h.
#include "lease/history_filter.h"

#include <algorithm>
#include <ctime>
#include <fmt/format.h>
#include <iterator>
#include <pwd.h>
#include <utility>
#include <vector>

#include "base/configuration.h"
#include "base/text.h"
#include "base/time_text.h"
#include "base/users.h"
#include "lease/gpu_list.h"

namespace berth {
namespace {

// The midnight before now, in local time, or that of an earlier day.
TimePoint midnight_before(TimePoint now, int days) {
  std::tm midnight = to_local_tm(now);
  midnight.tm_mday -= days;
  midnight.tm_hour = midnight.tm_min = midnight.tm_sec = 0;
  midnight.tm_isdst = -1;
  return TimePoint(std::chrono::seconds(std::mktime(&midnight)));
}

// Parses "2h" (before now), "today", "yesterday", or a date with or without the time of day.
Result<TimePoint> parse_start_time(std::string_view text) {
  const std::string word(text);
  const TimePoint now = std::chrono::system_clock::now();
  if (word == "today" || word == "yesterday") return midnight_before(now, word == "today" ? 0 : 1);
  for (const char* form :
       {"%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"}) {
    std::tm time{};
    time.tm_isdst = -1;
    const char* const end = ::strptime(word.c_str(), form, &time);
    if (end == nullptr || *end != '\0') continue;
    const std::time_t seconds = std::mktime(&time);
    if (seconds >= 0) return TimePoint(std::chrono::seconds(seconds));
  }
  const auto ago = parse_duration(text);
  if (!ago) {
    return fail(ErrorKind::usage,
                fmt::format("{} is neither a time such as 2h, 7d or yesterday nor a date such as "
                            "2026-11-16",
                            in_quotes(text)));
  }
  return *ago < now.time_since_epoch() ? now - *ago : TimePoint{};
}

Result<uid_t> parse_user(std::string_view text) {
  const std::string name(text);
  if (const passwd* user = ::getpwnam(name.c_str())) return user->pw_uid;
  if (const auto uid = parse_integer<uid_t>(text)) return *uid;
  return fail(ErrorKind::usage, fmt::format("there is no user {}", in_quotes(text)));
}

// The midnights in local time, from the one before `first` to the one after `last`. They are not
// always 24 hours apart: with daylight saving time, days have 23 to 25 hours.
std::vector<TimePoint> list_midnights(TimePoint first, TimePoint last) {
  std::vector<TimePoint> times;
  std::tm day = to_local_tm(first);
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

HistoryFilter make_recent_filter(std::chrono::hours time) {
  HistoryFilter filter;
  filter.since = std::chrono::system_clock::now() - time;
  return filter;
}

Result<void> set_since(HistoryFilter& filter, std::string_view text) {
  filter.since = TRY(parse_start_time(text));
  return {};
}

Result<void> set_user(HistoryFilter& filter, std::string_view text) {
  auto user = parse_user(text);
  // Other hosts may have users that do not exist on this host.
  if (!user && !harbour_location().url) return tl::make_unexpected(user.error());
  filter.lease_filter.uid = user ? std::optional(*user) : std::nullopt;
  filter.lease_filter.user = user ? user_name(*user) : std::string(text);
  return {};
}

Result<void> set_host(HistoryFilter& filter, std::string_view text) {
  if (!is_host_name(text)) {
    return fail(
        ErrorKind::usage,
        fmt::format("{} is not a host name; use only letters, digits and -_.", in_quotes(text)));
  }
  filter.lease_filter.host = text;
  return {};
}

Result<void> set_gpus(HistoryFilter& filter, std::string_view text) {
  filter.gpus = TRY(join_gpu_list({std::string(text)}));
  if (filter.gpus == kAllGpus) filter.gpus.clear();
  return {};
}

bool is_gpu_in_list(std::string_view list, std::string_view uuid, std::string_view index) {
  while (!list.empty()) {
    const std::string_view word = list.substr(0, list.find(','));
    if (word == uuid || word == index) return true;
    list.remove_prefix(std::min(list.size(), word.size() + 1));
  }
  return false;
}

bool matches_history_filter(const HistoryEntry& entry, const HistoryFilter& filter) {
  if (!filter.lease_filter.matches(entry.uid, entry.user, entry.host)) return false;
  return filter.gpus.empty() ||
         std::any_of(entry.gpus.begin(), entry.gpus.end(), [&](const HistoryGpu& gpu) {
           return is_gpu_in_list(filter.gpus, gpu.uuid, gpu.index);
         });
}

HistoryFilter resolve_host_filter(HistoryFilter filter, const HarbourLocation& location) {
  if (!location.url && filter.lease_filter.host == location.host) filter.lease_filter.host.clear();
  return filter;
}

Report make_filtered_report(const CompactHistory& history, const HistoryFilter& filter,
                            const std::vector<GpuIdentity>& present) {
  const LeaseTable& table = history.table;
  ReportQuery query;
  query.since = filter.since;
  query.now = std::chrono::system_clock::now();
  std::int64_t first = to_ms(query.now);
  for (const CompactLease& lease : table.leases()) first = std::min(first, lease.granted_ms);
  query.midnights =
      list_midnights(std::max(query.since, TimePoint(std::chrono::milliseconds(first))), query.now);
  query.history_start = history.start;
  const std::string& host = filter.lease_filter.host;
  std::copy_if(present.begin(), present.end(), std::back_inserter(query.present),
               [&](const GpuIdentity& gpu) { return host.empty() || gpu.host == host; });
  if (!filter.gpus.empty()) {
    query.includes_gpu = [&filter](std::string_view uuid, std::string_view index) {
      return is_gpu_in_list(filter.gpus, uuid, index);
    };
  }
  return make_report(table, query);
}

}  // namespace berth
