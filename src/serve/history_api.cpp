// Parses history queries and renders their documents; see history_api.h.
#include "serve/history_api.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "archive/history_json.h"
#include "archive/timeline.h"
#include "base/configuration.h"
#include "base/text.h"
#include "lease/history_filter.h"
#include "status/status.h"

namespace berth::serve {
namespace {

// A page cannot show more leases than that.
constexpr std::size_t kDefaultLimit = 1000;
constexpr std::size_t kMaxLimit = 10'000;
// Time and memory of a query grow with the number of leases, and so with the period.
constexpr std::chrono::hours kMaxLogPeriod(24 * 31);
constexpr std::chrono::hours kMaxReportPeriod(24 * 366);

struct ParsedQuery {
  HarbourLocation where = harbour_location();
  HistoryFilter history{};
  std::size_t limit = kDefaultLimit;
};

// The parameters that an endpoint accepts, and the limits of its period.
struct EndpointParams {
  std::string_view parameters;  // names, each with a blank before and after it
  std::chrono::hours default_period;
  std::chrono::hours max_period;
};

constexpr std::chrono::hours kDay(24);
constexpr EndpointParams kLogParams{" since user host gpu limit ", kDay, kMaxLogPeriod};
constexpr EndpointParams kReportParams{" since user host gpu ", 7 * kDay, kMaxReportPeriod};
constexpr EndpointParams kTimelineParams{" since ", kDay, kMaxLogPeriod};

std::string describe_parameters(const EndpointParams& params) {
  std::string names;
  for (const char c : params.parameters.substr(1, params.parameters.size() - 2)) {
    names += c == ' ' ? std::string(", ") : std::string(1, c);
  }
  const bool several = names.find(',') != std::string::npos;
  return fmt::format("{} {}", several ? "the parameters are" : "the only parameter is", names);
}

Result<void> parse_limit(std::string_view text, std::size_t& limit) {
  limit = parse_integer<std::size_t>(text).value_or(0);
  if (limit >= 1 && limit <= kMaxLimit) return {};
  return fail(ErrorKind::usage,
              fmt::format("{} is not a number from 1 to {}", in_quotes(text), kMaxLimit));
}

Result<void> apply_parameter(const std::string& name, const std::string& value,
                             ParsedQuery& parsed_query) {
  if (value.empty()) return {};  // as if it were not there
  if (name == "since") return set_since(parsed_query.history, value);
  if (name == "user") return set_user(parsed_query.history, value);
  if (name == "host") return set_host(parsed_query.history, value);
  if (name == "gpu") return set_gpus(parsed_query.history, value);
  return parse_limit(value, parsed_query.limit);
}

Result<ParsedQuery> parse_query(const HistoryQuery& query, const EndpointParams& params) {
  ParsedQuery parsed_query;
  parsed_query.history = make_recent_filter(params.default_period);
  for (const auto& [name, value] : query.parameters) {
    if (params.parameters.find(fmt::format(" {} ", name)) == std::string_view::npos) {
      return fail(ErrorKind::usage, fmt::format("there is no parameter {}; {}", in_quotes(name),
                                                describe_parameters(params)));
    }
    if (auto applied = apply_parameter(name, value, parsed_query); !applied) {
      return fail(ErrorKind::usage,
                  fmt::format("{}: {}", printable(name), applied.error().message));
    }
  }
  // With a tolerance: the start of "31d" was computed a moment ago, so it is older than that now.
  if (parsed_query.history.since <
      make_recent_filter(params.max_period).since - std::chrono::minutes(1)) {
    return fail(ErrorKind::usage,
                fmt::format("since: the longest period is {} days", params.max_period / kDay));
  }
  parsed_query.history = resolve_host_filter(parsed_query.history, parsed_query.where);
  return parsed_query;
}

}  // namespace

std::string history_cache_key(const std::string& path, const HistoryQuery& query) {
  std::string text = path;
  for (const auto& [name, value] : query.parameters) {
    text += fmt::format("&{}:{}={}", name, value.size(), value);
  }
  return text;
}

Result<std::string> log_document(const HistoryQuery& query) {
  const ParsedQuery parsed = TRY(parse_query(query, kLogParams));
  const auto matches = [&](const HistoryEntry& entry) {
    return matches_history_filter(entry, parsed.history);
  };
  const History history = TRY(read_merged_history(parsed.where, parsed.history.since, matches));
  const auto& entries = history.entries;
  const std::size_t left_out = entries.size() - std::min(entries.size(), parsed.limit);
  std::string text = "{\"leases\": [";
  for (std::size_t i = left_out; i < entries.size(); ++i) {
    if (i > left_out) text += ", ";
    text += log_json(entries[i], parsed.where.host, query.command_visibility);
    text.pop_back();  // the newline
  }
  text += fmt::format("], \"truncated\": {}}}\n", history.truncated || left_out > 0);
  return text;
}

Result<std::string> report_document(const HistoryQuery& query) {
  const ParsedQuery parsed = TRY(parse_query(query, kReportParams));
  const CompactHistory history =
      TRY(read_merged_leases(parsed.where, parsed.history.since, parsed.history.lease_filter));
  const Report report = make_filtered_report(history, parsed.history, query.snapshot->gpus);
  const std::string host = parsed.where.url ? parsed.history.lease_filter.host : kernel_host_name();
  return report_json(report, ReportBy::all, host, history.damaged, query.command_visibility);
}

Result<std::string> timeline_document(const HistoryQuery& query) {
  const ParsedQuery parsed = TRY(parse_query(query, kTimelineParams));
  const CompactHistory history =
      TRY(read_merged_leases(parsed.where, parsed.history.since, parsed.history.lease_filter));
  TimelineQuery timeline_query;
  timeline_query.since = parsed.history.since;
  timeline_query.until = std::chrono::system_clock::now();
  timeline_query.this_host = local_host_name(parsed.where);
  timeline_query.present = query.snapshot->gpus;
  Timeline timeline = make_timeline(history.table, timeline_query);
  timeline.truncated = timeline.truncated || history.truncated;
  return timeline_json(timeline);
}

}  // namespace berth::serve
