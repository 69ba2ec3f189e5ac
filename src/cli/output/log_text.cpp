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

constexpr std::size_t kTimeWidth = std::string_view("2026-11-16 08:41:45").size();
constexpr std::size_t kDurationWidth = std::string_view("23h 59m").size();
constexpr std::size_t kMemoryWidth = std::string_view("9.99 GiB").size();
constexpr std::size_t kEndingWidth = std::string_view("exit 127").size();
constexpr std::size_t kMaxHostWidth = 16;
constexpr std::size_t kMaxUserWidth = 16;
constexpr std::size_t kMaxGpusWidth = 12;

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
                   bool several_hosts)
    : terminal_(terminal),
      host_width_(several_hosts ? std::strlen("HOST") : 0),
      user_width_(std::strlen("USER")),
      gpus_width_(std::strlen("GPU")) {
  for (const HistoryEntry& entry : entries) {
    if (several_hosts)
      host_width_ = std::max(host_width_, display_width(terminal.escape(entry.host)));
    user_width_ =
        std::max(user_width_, display_width(terminal.escape(user_name(entry.uid, entry.user))));
    gpus_width_ = std::max(gpus_width_, display_width(terminal.escape(gpu_list_text(entry))));
  }
  host_width_ = std::min(host_width_, kMaxHostWidth);
  user_width_ = std::min(user_width_, kMaxUserWidth);
  gpus_width_ = std::min(gpus_width_, kMaxGpusWidth);
}

std::string LogTable::heading() const {
  return terminal_.paint(
             Style::bold,
             fmt::format("{}  {}  {}  {}{}  {}  {}  {}  COMMAND", align_left("GRANTED", kTimeWidth),
                         align_right("LASTED", kDurationWidth),
                         align_right("WAITED", kDurationWidth),
                         host_width_ == 0 ? "" : align_left("HOST", host_width_) + "  ",
                         align_left("USER", user_width_), align_left("GPU", gpus_width_),
                         align_right("MEMORY", kMemoryWidth), align_left("END", kEndingWidth))) +
         "\n";
}

std::string LogTable::line(const HistoryEntry& entry) const {
  const auto cell = [this](std::string_view text, std::size_t width) {
    return align_left(truncate_text(terminal_.escape(text), width, terminal_.charset), width);
  };
  const std::string prefix = fmt::format(
      "{}  {}  {}  {}{}  {}  {}  ", format_local_time(entry.granted),
      align_right(duration_text(entry), kDurationWidth),
      align_right(format_whole_seconds(entry.granted - entry.asked), kDurationWidth),
      host_width_ == 0 ? "" : cell(entry.host, host_width_) + "  ",
      cell(user_name(entry.uid, entry.user), user_width_), cell(gpu_list_text(entry), gpus_width_),
      align_right(entry.memory ? format_size(*entry.memory) : "whole", kMemoryWidth));
  std::string command = terminal_.escape(entry.command);
  if (!entry.label.empty()) command += fmt::format(" ({})", terminal_.escape(entry.label));
  const std::string ending = cell(ending_text(entry), kEndingWidth);
  if (terminal_.width) {
    const std::size_t fixed_width = display_width(prefix) + kEndingWidth + 2;
    const std::size_t room = *terminal_.width > fixed_width ? *terminal_.width - fixed_width : 0;
    command = truncate_text(command, room, terminal_.charset);
  }
  return fmt::format("{}{}  {}\n", prefix, terminal_.paint(ending_style(entry), ending), command);
}

}  // namespace berth
