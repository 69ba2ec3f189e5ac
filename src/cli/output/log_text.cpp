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

constexpr std::size_t kTime = std::string_view("2026-11-16 08:41:45").size();
constexpr std::size_t kLength = std::string_view("23h 59m").size();
constexpr std::size_t kMemory = std::string_view("9.99 GiB").size();
constexpr std::size_t kEnd = std::string_view("exit 127").size();
constexpr std::size_t kWidestHost = 16;
constexpr std::size_t kWidestUser = 16;
constexpr std::size_t kWidestGpus = 12;

// When a lost one ended, nobody has seen.
std::string lasted(const HistoryEntry& entry) {
  return entry.ending == Ending::lost ? "?" : length_text(entry.ended - entry.granted);
}

std::string gpus_of(const HistoryEntry& entry) {
  std::string list;
  for (const HistoryGpu& gpu : entry.gpus) {
    if (!list.empty()) list += ',';
    list += gpu.index.empty() ? gpu.uuid : gpu.index;
  }
  return list;
}

std::string end_of(const HistoryEntry& entry) {
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

Style style_of(const HistoryEntry& entry) {
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
      host_(several_hosts ? std::strlen("HOST") : 0),
      user_(std::strlen("USER")),
      gpus_(std::strlen("GPU")) {
  for (const HistoryEntry& entry : entries) {
    if (several_hosts) host_ = std::max(host_, display_width(terminal.show(entry.host)));
    user_ = std::max(user_, display_width(terminal.show(user_name(entry.uid, entry.user))));
    gpus_ = std::max(gpus_, display_width(terminal.show(gpus_of(entry))));
  }
  host_ = std::min(host_, kWidestHost);
  user_ = std::min(user_, kWidestUser);
  gpus_ = std::min(gpus_, kWidestGpus);
}

std::string LogTable::heading() const {
  return terminal_.paint(
             Style::bold,
             fmt::format("{}  {}  {}  {}{}  {}  {}  {}  COMMAND", left("GRANTED", kTime),
                         right("LASTED", kLength), right("WAITED", kLength),
                         host_ == 0 ? "" : left("HOST", host_) + "  ", left("USER", user_),
                         left("GPU", gpus_), right("MEMORY", kMemory), left("END", kEnd))) +
         "\n";
}

std::string LogTable::line(const HistoryEntry& entry) const {
  const auto cell = [this](std::string_view text, std::size_t width) {
    return left(fitted(terminal_.show(text), width, terminal_.charset), width);
  };
  const std::string before = fmt::format(
      "{}  {}  {}  {}{}  {}  {}  ", local_time(entry.granted), right(lasted(entry), kLength),
      right(length_text(entry.granted - entry.asked), kLength),
      host_ == 0 ? "" : cell(entry.host, host_) + "  ",
      cell(user_name(entry.uid, entry.user), user_), cell(gpus_of(entry), gpus_),
      right(entry.memory ? format_size(*entry.memory) : "whole", kMemory));
  std::string what = terminal_.show(entry.command);
  if (!entry.label.empty()) what += fmt::format(" ({})", terminal_.show(entry.label));
  const std::string end = cell(end_of(entry), kEnd);
  if (terminal_.width) {
    const std::size_t used = display_width(before) + kEnd + 2;
    const std::size_t room = *terminal_.width > used ? *terminal_.width - used : 0;
    what = fitted(what, room, terminal_.charset);
  }
  return fmt::format("{}{}  {}\n", before, terminal_.paint(style_of(entry), end), what);
}

}  // namespace berth
