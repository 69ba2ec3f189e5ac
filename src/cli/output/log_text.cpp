// The table of `berth log`; see log_text.h.
#include "cli/output/log_text.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <string_view>

#include "base/text.h"
#include "base/time_text.h"
#include "base/users.h"

namespace berth {
namespace {

constexpr std::size_t kMaxLogNameWidth = 16;  // of users and hosts
constexpr std::size_t kMaxLogGpusWidth = 12;
constexpr std::size_t kGap = 2;
// With less room than this for the command, the columns for the wait and the memory are left out.
constexpr std::size_t kMinLogCommandWidth = 24;

// The widths that the entries to come can be expected to need.
constexpr std::size_t kDurationWidth = std::string_view("23h 59m").size();
constexpr std::size_t kMemoryWidth = std::string_view("9.99 GiB").size();
constexpr std::size_t kEndingWidth = std::string_view("exit 127").size();

constexpr std::array kTitles{"GRANTED", "LASTED", "WAITED", "HOST", "USER", "GPU", "MEMORY", "END"};

// On a terminal: "11-16 08:41", or "2025-11-16" in another year.
std::string time_text(TimePoint time, const Terminal& terminal, TimePoint now) {
  if (!terminal.width) return format_local_time(time);
  const bool is_this_year = to_local_tm(time).tm_year == to_local_tm(now).tm_year;
  return format_local_time(time, is_this_year ? "%m-%d %H:%M" : "%Y-%m-%d");
}

// A line of a batch is run as `/bin/sh -c LINE`.
std::string_view without_shell(std::string_view command) {
  constexpr std::string_view kShell = "/bin/sh -c ";
  if (command.starts_with(kShell)) command.remove_prefix(kShell.size());
  return command;
}

// "eval: python eval.py", with the label first.
std::string job_text(const HistoryEntry& entry, const Terminal& terminal) {
  const std::string command = terminal.escape(without_shell(entry.command));
  return entry.label.empty() ? command
                             : fmt::format("{}: {}", terminal.escape(entry.label), command);
}

// It is not known when a lost lease ended.
std::string duration_text(const HistoryEntry& entry) {
  return entry.ending == Ending::lost ? "?" : format_whole_seconds(entry.ended - entry.granted);
}

std::string gpu_list_text(const HistoryEntry& entry) {
  return join_text(entry.gpus, ",",
                   [](const HistoryGpu& gpu) { return gpu.index.empty() ? gpu.uuid : gpu.index; });
}

std::string ending_text(const HistoryEntry& entry) {
  switch (entry.ending) {
    case Ending::running:
      return "running";
    case Ending::exited:
      return entry.code == 0 ? "ok" : fmt::format("exit {}", entry.code);
    case Ending::killed: {
      const char* name = ::sigabbrev_np(entry.code);
      return name == nullptr ? fmt::format("sig {}", entry.code) : name;
    }
    case Ending::released:
      return "released";
    case Ending::lost:
      return "lost";
  }
  return "";
}

Style ending_style(const HistoryEntry& entry) {
  switch (entry.ending) {
    case Ending::running:
      return Style::notice;
    case Ending::exited:
      return entry.code == 0 ? Style::good : Style::bad;
    case Ending::killed:
      return Style::bad;
    case Ending::released:
      return Style::plain;
    case Ending::lost:
      return Style::warning;
  }
  return Style::plain;
}

}  // namespace

LogTable::LogTable(const Terminal& terminal, const std::vector<HistoryEntry>& entries,
                   const LogTableOptions& options)
    : terminal_(terminal), now_(options.now) {
  for (std::size_t c = 0; c < Column::count; ++c) widths_[c] = std::strlen(kTitles[c]);
  if (options.more_follow || !terminal.width) {
    widths_[lasted] = widths_[waited] = kDurationWidth;
    widths_[memory] = kMemoryWidth;
    widths_[end] = kEndingWidth;
  }
  bool has_memory = options.more_follow || !terminal.width;
  for (const HistoryEntry& entry : entries) {
    const Cells cells = make_cells(entry);
    for (std::size_t c = 0; c < Column::count; ++c)
      widths_[c] = std::max(widths_[c], display_width(cells[c]));
    has_memory = has_memory || entry.memory;
  }
  widths_[host] = options.several_hosts ? std::min(widths_[host], kMaxLogNameWidth) : 0;
  widths_[user] = std::min(widths_[user], kMaxLogNameWidth);
  widths_[gpus] = std::min(widths_[gpus], kMaxLogGpusWidth);
  if (!has_memory) widths_[memory] = 0;
  for (const Column column : {waited, memory}) {
    if (terminal.width && room_for_command() < kMinLogCommandWidth) widths_[column] = 0;
  }
}

std::size_t LogTable::room_for_command() const {
  std::size_t used = 0;
  for (const std::size_t width : widths_) used += width == 0 ? 0 : width + kGap;
  return *terminal_.width > used ? *terminal_.width - used : 0;
}

LogTable::Cells LogTable::make_cells(const HistoryEntry& entry) const {
  return {
      time_text(entry.granted, terminal_, now_),           duration_text(entry),
      format_whole_seconds(entry.granted - entry.asked),   terminal_.escape(entry.host),
      terminal_.escape(user_name(entry.uid, entry.user)),  terminal_.escape(gpu_list_text(entry)),
      entry.memory ? format_size(*entry.memory) : "whole", ending_text(entry)};
}

std::string LogTable::join_cells(const Cells& cells, Style end_style) const {
  std::string out;
  for (std::size_t c = 0; c < Column::count; ++c) {
    const std::size_t width = widths_[c];
    if (width == 0) continue;
    const bool is_number = c == lasted || c == waited || c == memory;
    const std::string cell =
        is_number ? align_right(cells[c], width)
                  : align_left(truncate_text(cells[c], width, terminal_.charset), width);
    out += c == end ? terminal_.paint(end_style, cell) : cell;
    out.append(kGap, ' ');
  }
  return out;
}

std::string LogTable::heading() const {
  Cells titles;
  std::copy(kTitles.begin(), kTitles.end(), titles.begin());
  return terminal_.paint(Style::bold, join_cells(titles, Style::plain) + "COMMAND") + "\n";
}

std::string LogTable::line(const HistoryEntry& entry) const {
  std::string job = job_text(entry, terminal_);
  if (terminal_.width) job = truncate_text(job, room_for_command(), terminal_.charset);
  return join_cells(make_cells(entry), ending_style(entry)) + job + "\n";
}

}  // namespace berth
