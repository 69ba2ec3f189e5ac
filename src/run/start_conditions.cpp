// Waits for other jobs and for a time; see start_conditions.h.
#include "run/start_conditions.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fmt/format.h>
#include <poll.h>
#include <sys/timerfd.h>
#include <utility>

#include "base/quantity.h"
#include "base/signals.h"
#include "base/terminal.h"
#include "base/text.h"
#include "base/time_text.h"
#include "harbour/record.h"
#include "run/job_wait.h"

namespace berth {
namespace {

// A local time of day, `days` after the day of `now`. mktime() knows when summer time begins.
TimePoint local_time(TimePoint now, int days, const std::tm& time_of_day) {
  std::tm time = to_local_tm(now);
  time.tm_mday += days;
  time.tm_hour = time_of_day.tm_hour;
  time.tm_min = time_of_day.tm_min;
  time.tm_sec = time_of_day.tm_sec;
  time.tm_isdst = -1;
  return TimePoint(std::chrono::seconds(std::mktime(&time)));
}

// The whole of `text` in one of the forms of strptime(3).
template <std::size_t N>
std::optional<std::tm> parse_form(const std::string& text,
                                  const std::array<const char*, N>& forms) {
  for (const char* const form : forms) {
    std::tm time{};
    const char* const end = ::strptime(text.c_str(), form, &time);
    if (end != nullptr && *end == '\0') return time;
  }
  return std::nullopt;
}

std::optional<TimePoint> parse_date(const std::string& text) {
  constexpr std::array kForms{"%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M",
                              "%Y-%m-%dT%H:%M", "%Y-%m-%d"};
  auto time = parse_form(text, kForms);
  if (!time) return std::nullopt;
  time->tm_isdst = -1;
  return TimePoint(std::chrono::seconds(std::mktime(&*time)));
}

// "18:00", "tomorrow", "tomorrow 9:00".
std::optional<TimePoint> parse_near_time(std::string_view text, TimePoint now) {
  constexpr std::string_view kTomorrow = "tomorrow";
  constexpr std::array kForms{"%H:%M", "%H:%M:%S"};
  const bool tomorrow = text.starts_with(kTomorrow);
  if (tomorrow) text.remove_prefix(kTomorrow.size());
  if (tomorrow && text.empty()) return local_time(now, 1, std::tm{});
  if (tomorrow && !text.starts_with(' ')) return std::nullopt;
  if (tomorrow) text.remove_prefix(1);
  const auto time = parse_form(std::string(text), kForms);
  if (!time) return std::nullopt;
  if (tomorrow) return local_time(now, 1, *time);
  const TimePoint today = local_time(now, 0, *time);
  return today > now ? today : local_time(now, 1, *time);
}

// Returns at the time by the host's clock, also if that is set meanwhile; false: interrupted.
Result<bool> wait_for_time(TimePoint time, int interrupt) {
  const auto since_1970 = std::chrono::ceil<std::chrono::seconds>(time.time_since_epoch());
  const UniqueFd timer(::timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK));
  itimerspec due{};
  due.it_value.tv_sec = since_1970.count();
  if (!timer || ::timerfd_settime(timer.get(), TFD_TIMER_ABSTIME, &due, nullptr) != 0)
    return fail(ErrorKind::io, fmt::format("cannot set a timer: {}", std::strerror(errno)));
  std::array<pollfd, 2> watched{{{timer.get(), POLLIN, 0}, {interrupt, POLLIN, 0}}};
  while (::poll(watched.data(), watched.size(), -1) < 0 && errno == EINTR) {
  }
  return watched[1].revents == 0;
}

Error failed_job_error(const std::string& id, const JobOutcome& outcome) {
  const std::string end = outcome.code ? fmt::format("failed (exit code {})", *outcome.code)
                                       : "ended with an unknown exit code";
  return {ErrorKind::impossible,
          fmt::format("job {} {}, so this job does not run; to run it all the same, use "
                      "--after-any",
                      id, end)};
}

void report_hold(JobRecorder& recorder, const std::string& reason) {
  recorder.write_held(reason);
  print_message(reason);
}

// False: interrupted. The first job that has failed ends the wait.
Result<bool> wait_for_jobs(const std::vector<std::string>& ids, bool must_succeed,
                           JobRecorder& recorder, int interrupt) {
  std::vector<JobWatch> jobs;
  jobs.reserve(ids.size());
  for (const std::string& id : ids) jobs.push_back(TRY(JobWatch::open(id)));
  while (!jobs.empty()) {
    auto ended = TRY(wait_for_any_job(jobs, std::chrono::steady_clock::now(), interrupt));
    if (!ended) {
      const char* const noun = jobs.size() == 1 ? "job" : "jobs";
      const std::string names = fmt::format("{} {}", noun, join_text(jobs, ", ", &JobWatch::id));
      report_hold(recorder, must_succeed ? fmt::format("waits for {} to succeed", names)
                                         : fmt::format("waits for the end of {}", names));
      ended = TRY(wait_for_any_job(jobs, std::nullopt, interrupt));
    }
    if (!ended) return false;
    if (must_succeed && !ended->outcome.succeeded())
      return tl::make_unexpected(failed_job_error(jobs[ended->index].id(), ended->outcome));
    jobs.erase(jobs.begin() + static_cast<std::ptrdiff_t>(ended->index));
  }
  return true;
}

// False: interrupted.
Result<bool> wait_for_all(const StartConditions& conditions, JobRecorder& recorder, int interrupt) {
  if (!TRY(wait_for_jobs(conditions.after, true, recorder, interrupt))) return false;
  if (!TRY(wait_for_jobs(conditions.after_any, false, recorder, interrupt))) return false;
  if (!conditions.begin || *conditions.begin <= std::chrono::system_clock::now()) return true;
  report_hold(recorder, fmt::format("begins at {}", format_local_time(*conditions.begin)));
  return wait_for_time(*conditions.begin, interrupt);
}

}  // namespace

Result<TimePoint> parse_begin_time(std::string_view text, TimePoint now) {
  if (const auto time = parse_near_time(text, now)) return *time;
  if (const auto time = parse_date(std::string(text))) {
    if (*time > now) return *time;
    return fail(ErrorKind::usage, fmt::format("{} is in the past; write a later time, such as 2h "
                                              "or tomorrow 9:00",
                                              in_quotes(text)));
  }
  const auto delay = parse_duration(text);
  if (delay && *delay < TimePoint::max() - now) return now + *delay;
  return fail(ErrorKind::usage,
              fmt::format("{} is not a time; write one such as 18:00, tomorrow 9:00, 2h or "
                          "2026-11-20 14:00",
                          in_quotes(text)));
}

Result<void> add_job_ids(std::string_view text, std::vector<std::string>& ids) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view id = text.substr(begin, end - begin);
    if (!is_id(id)) {
      return fail(ErrorKind::usage,
                  fmt::format("{} is not the id of a job; 'berth jobs' lists them", in_quotes(id)));
    }
    ids.emplace_back(id);
    begin = end + 1;
  }
  return {};
}

Result<void> check_start_conditions(const StartConditions& conditions) {
  for (const auto* ids : {&conditions.after, &conditions.after_any}) {
    for (const std::string& id : *ids) TRY(JobWatch::open(id));
  }
  return {};
}

Result<std::optional<int>> wait_for_start(const StartConditions& conditions,
                                          JobRecorder& recorder) {
  if (conditions.after.empty() && conditions.after_any.empty() && !conditions.begin)
    return std::nullopt;
  SignalQueue signals({SIGINT, SIGTERM, SIGHUP, SIGQUIT});
  if (TRY(wait_for_all(conditions, recorder, signals.fd()))) {
    recorder.write_held("");
    return std::nullopt;
  }
  return static_cast<int>(signals.next().value_or(signalfd_siginfo{}).ssi_signo);
}

}  // namespace berth
