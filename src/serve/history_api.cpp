// Questions about the past; see past.h.
#include "serve/history_api.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <utility>

#include "archive/log_json.h"
#include "archive/report_json.h"
#include "archive/timeline.h"
#include "archive/timeline_json.h"
#include "base/text.h"
#include "lease/history_filter.h"
#include "status/status.h"

namespace berth {
namespace {

// However many leases there were, a page can show no more.
constexpr std::size_t kDefaultLimit = 1000;
constexpr std::size_t kMostLimit = 10'000;
// Reading costs time and memory with the number of leases.
constexpr std::chrono::hours kLongestLog(24 * 31);
constexpr std::chrono::hours kLongestReport(24 * 366);

struct Question {
  HistoryOptions history;
  std::size_t limit = kDefaultLimit;
};

// Which parameters a path has, and for how long it may be asked.
struct EndpointParams {
  std::string_view parameters;  // each with a blank before and behind it
  std::chrono::hours usual;
  std::chrono::hours longest;
};

constexpr std::chrono::hours kDay(24);
constexpr EndpointParams kLogForm{" since user host gpu limit ", kDay, kLongestLog};
constexpr EndpointParams kReportForm{" since user host gpu ", 7 * kDay, kLongestReport};
constexpr EndpointParams kTimelineForm{" since ", kDay, kLongestLog};

Result<void> take_limit(std::string_view text, std::size_t& limit) {
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, limit);
  if (problem == std::errc{} && rest == end && limit >= 1 && limit <= kMostLimit) return {};
  return fail(ErrorKind::usage,
              fmt::format("{} is not a number from 1 to {}", in_quotes(text), kMostLimit));
}

Result<void> take(const std::string& name, const std::string& value, Question& question) {
  if (value.empty()) return {};  // as if it were not there
  if (name == "since") return set_since(question.history, value);
  if (name == "user") return set_user(question.history, value);
  if (name == "host") return set_host(question.history, value);
  if (name == "gpu") return set_gpus(question.history, value);
  return take_limit(value, question.limit);
}

Result<Question> parsed(const HistoryQuery& asked, const EndpointParams& form) {
  Question question;
  question.history = last(form.usual);
  for (const auto& [name, value] : asked.query) {
    if (form.parameters.find(fmt::format(" {} ", name)) == std::string_view::npos) {
      return fail(ErrorKind::usage, fmt::format("there is no parameter {}; there are:{}",
                                                in_quotes(name), form.parameters));
    }
    if (auto taken = take(name, value, question); !taken) {
      return fail(ErrorKind::usage, fmt::format("{}: {}", printable(name), taken.error().message));
    }
  }
  // With a little to spare: "31d" is some time ago by now.
  if (question.history.since < last(form.longest).since - std::chrono::minutes(1)) {
    return fail(ErrorKind::usage,
                fmt::format("since: at most {} days can be asked for", form.longest / kDay));
  }
  return question;
}

HttpAnswer failed(const Error& error) {
  return error_answer(error.kind == ErrorKind::usage ? 400 : 503, error.message);
}

}  // namespace

std::string question_of(const char* what, const HistoryQuery& asked) {
  std::string text = what;
  for (const auto& [name, value] : asked.query) {
    text += fmt::format("&{}:{}={}", name, value.size(), value);
  }
  return text;
}

HttpAnswer past_log(const HistoryQuery& asked) {
  const auto question = parsed(asked, kLogForm);
  if (!question) return failed(question.error());
  const HarbourLocation where = harbour_location();
  const HistoryOptions meant = settled(question->history, where);
  const auto want = [&](const HistoryEntry& entry) { return wanted(entry, meant); };
  const auto history = recall(where, meant.since, want);
  if (!history) return failed(history.error());
  const auto& entries = history->entries;
  const std::size_t left_out =
      entries.size() - std::min<std::size_t>(entries.size(), question->limit);
  std::string text = "{\"leases\": [";
  for (std::size_t i = left_out; i < entries.size(); ++i) {
    if (i > left_out) text += ", ";
    text += log_json(entries[i], where.host, asked.commands_of);
    text.pop_back();  // its newline
  }
  text += fmt::format("], \"truncated\": {}}}\n", history->truncated || left_out > 0);
  return json_answer(std::move(text));
}

HttpAnswer past_report(const HistoryQuery& asked) {
  const auto question = parsed(asked, kReportForm);
  if (!question) return failed(question.error());
  const HarbourLocation where = harbour_location();
  const HistoryOptions meant = settled(question->history, where);
  const auto history = recall_leases(where, meant.since, meant.of);
  if (!history) return failed(history.error());
  const Report report = reported(history->table, meant);
  const std::string host = where.url ? meant.of.host : host_name();
  return json_answer(report_json(report, ReportBy::all, host, history->damaged, asked.commands_of));
}

HttpAnswer past_timeline(const HistoryQuery& asked) {
  const auto question = parsed(asked, kTimelineForm);
  if (!question) return failed(question.error());
  const HarbourLocation where = harbour_location();
  const HistoryOptions meant = settled(question->history, where);
  const auto history = recall_leases(where, meant.since, meant.of);
  if (!history) return failed(history.error());
  TimelineQuery query;
  query.since = meant.since;
  query.until = std::chrono::system_clock::now();
  query.this_host = this_host(where);
  query.present = asked.picture->gpus;
  return json_answer(timeline_json(make_timeline(history->table, query)));
}

}  // namespace berth
