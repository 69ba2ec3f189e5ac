// The table of `berth jobs`; see jobs_text.h.
#include "cli/output/jobs_text.h"

#include <fmt/format.h>
#include <utility>

#include "base/text.h"
#include "base/time_text.h"
#include "cli/output/text_table.h"
#include "status/status_format.h"

namespace berth {
namespace {

constexpr std::size_t kIdWidth = 8;
constexpr std::size_t kMaxJobGpusWidth = 12;
constexpr std::size_t kMaxJobUserWidth = 12;
constexpr std::size_t kMaxJobHostWidth = 24;

// The columns, in the order of the line.
struct JobLine {
  enum Column : std::size_t { id, state, user, host, gpus, since, lasts, until, exit, lines, job };
};

// "08:41" today, "11-16 08:41" this year, "2025-11-16" before; in a file or pipe the whole time.
std::string state_time_text(const std::optional<TimePoint>& time, const Terminal& terminal,
                            TimePoint now) {
  if (!time) return std::string(kAbsent);
  if (!terminal.width) return format_local_time(*time);
  if (format_local_date(*time) == format_local_date(now)) return format_local_time(*time, "%H:%M");
  const bool is_this_year = to_local_tm(*time).tm_year == to_local_tm(now).tm_year;
  return format_local_time(*time, is_this_year ? "%m-%d %H:%M" : "%Y-%m-%d");
}

// How long it has been in its state; of an ended job, how long it ran.
std::string state_duration_text(const JobInfo& job, TimePoint now) {
  if (job.is_active()) return format_rough_duration(now - job.state_since().value_or(now));
  if (!job.ended || !job.started) return std::string(kAbsent);
  return format_rough_duration(*job.ended - *job.started);
}

std::string until_text(const JobInfo& job, TimePoint now) {
  if (job.state == JobState::running) return format_end(job.expected_end, now, TextForm::column);
  if (job.state == JobState::waiting)
    return format_start(job.expected_start, now, TextForm::column);
  return std::string(kAbsent);
}

Cell state_cell(const JobInfo& job) {
  Style style = Style::plain;
  if (job.state == JobState::running) style = Style::notice;
  const bool failed = job.state == JobState::ended && job.exit_code.value_or(0) != 0;
  if (failed) return {"failed", Style::bad};
  if (job.state == JobState::ended) style = Style::dim;
  return {state_name(job.state), style};
}

Cell exit_cell(const JobInfo& job) {
  if (job.is_active() || job.is_released) return {std::string(kAbsent)};
  if (!job.exit_code) return {"unknown", Style::warning};
  return {std::to_string(*job.exit_code), *job.exit_code == 0 ? Style::good : Style::bad};
}

// "12/150", "12/150 (2 failed)".
Cell lines_cell(const JobInfo& job) {
  if (!job.batch) return {};
  const std::size_t done = job.batch->succeeded + job.batch->failed;
  std::string text = fmt::format("{}/{}", done, job.batch->total);
  if (job.batch->failed > 0) text += fmt::format(" ({} failed)", job.batch->failed);
  return {std::move(text), job.batch->failed > 0 ? Style::bad : Style::plain};
}

// Of a ticket that waits on several hosts, all of them.
std::string host_text(const JobInfo& job, const Terminal& terminal) {
  const std::string text = job.host.empty() ? join_text(job.queue_hosts, ",") : job.host;
  return text.empty() ? std::string(kAbsent) : terminal.escape(text);
}

std::string label_and_command_text(const JobInfo& job, const Terminal& terminal) {
  const std::string command = terminal.escape(job.command);
  if (job.label.empty()) return command;
  const std::string label = terminal.escape(job.label);
  return command.empty() ? label : fmt::format("{}: {}", label, command);
}

std::string job_note_text(const JobInfo& job, const Terminal& terminal) {
  const std::string reason = terminal.escape(job.reason);
  if (!job.position) return reason;
  return fmt::format("position {}{}{}", *job.position, reason.empty() ? "" : ": ", reason);
}

}  // namespace

std::string jobs_text(const std::vector<JobInfo>& jobs, const Terminal& terminal,
                      const JobsTableOptions& options) {
  bool has_lines = false;
  bool has_hosts = false;
  std::vector<TableRow> rows;
  for (const JobInfo& job : jobs) {
    has_lines = has_lines || job.batch;
    has_hosts =
        has_hosts || (!job.host.empty() && job.host != options.host) || job.queue_hosts.size() > 1;
    rows.push_back(
        {{{terminal.escape(job.id)},  // another user's history may have any text as an id
          state_cell(job),
          {terminal.escape(job.user), job.is_own ? Style::bold : Style::plain},
          {host_text(job, terminal)},
          {job.gpus.empty() ? std::string(kAbsent) : terminal.escape(join_text(job.gpus, ","))},
          {state_time_text(job.state_since(), terminal, options.now)},
          {state_duration_text(job, options.now)},
          {until_text(job, options.now)},
          exit_cell(job),
          lines_cell(job),
          {label_and_command_text(job, terminal)}}});
    std::string note = job_note_text(job, terminal);
    if (!note.empty()) rows.push_back({{{}}, std::move(note), Style::dim});
  }
  const std::size_t unlimited = ~0UL;
  std::vector<TableColumn> columns{{"ID", false, kIdWidth},
                                   {"STATE"},
                                   {"USER", false, options.has_users ? kMaxJobUserWidth : 0},
                                   {"HOST", false, has_hosts ? kMaxJobHostWidth : 0},
                                   {"GPU", false, kMaxJobGpusWidth},
                                   {"SINCE"},
                                   {"FOR", true},
                                   {"UNTIL"},
                                   {"EXIT", true},
                                   {"LINES", true, has_lines ? unlimited : 0},
                                   {"JOB"}};
  return TextTable(std::move(columns), std::move(rows),
                   {JobLine::since, JobLine::until, JobLine::gpus, JobLine::lasts}, terminal)
      .render();
}

}  // namespace berth
