// Tables and charts of characters; see report_text.h.
#include "cli/output/report_text.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>

#include "archive/day_chart.h"
#include "base/time_text.h"
#include "base/users.h"

namespace berth {
namespace {

constexpr std::size_t kMostRows = 10;     // of a section, where all sections are shown
constexpr std::size_t kUsualWidth = 100;  // where lines may be as long as they like
constexpr std::size_t kWidestName = 32;
constexpr std::size_t kNarrowestBar = 8;
constexpr std::size_t kWidestBar = 30;
constexpr std::size_t kBetween = 2;

std::string heading(const Terminal& terminal, std::string_view text) {
  return fmt::format("\n{}\n", terminal.paint(Style::bold, text));
}

struct Column {
  const char* title;
  std::size_t width;
  unsigned rank;  // the lowest stays longest where there is little room
  std::string (*text)(const Figures& figures);
};

std::string shared_text(const Figures& figures) {
  return hours_text(figures.shared_gpu_hours);
}
std::string held_text(const Figures& figures) {
  return hours_text(figures.gpu_hours);
}
std::string leases_text(const Figures& figures) {
  return fmt::format("{}", figures.leases);
}

constexpr std::array<Column, 6> kColumns{{{"GPU-HOURS", 9, 0, held_text},
                                          {"SHARED", 8, 2, shared_text},
                                          {"UTIL", 5, 1, utilization_text},
                                          {"IDLE", 5, 3, idle_text},
                                          {"LEASES", 7, 5, leases_text},
                                          {"WAITED", 7, 4, waited_text}}};

// A table that fits: with fewer columns where the terminal is narrow.
class Table {
 public:
  Table(const ReportSection& section, const Terminal& terminal) : terminal_(terminal) {
    const std::size_t width = terminal.width.value_or(kUsualWidth);
    name_ = std::strlen(section.word);
    bool shares = false;
    for (const ReportRow& row : section.rows) {
      name_ = std::max(name_, display_width(terminal.show(row.name)));
      shares = shares || row.figures->shared_gpu_hours > 0;
      most_ = std::max(most_, row.figures->held_hours());
    }
    name_ = std::min({name_, kWidestName, std::max<std::size_t>(width * 3 / 10, 10)});
    std::size_t used = name_ + kBetween + kNarrowestBar;
    for (unsigned rank = 0; rank < kColumns.size(); ++rank) {
      const auto* const column = std::find_if(kColumns.begin(), kColumns.end(),
                                              [&](const Column& one) { return one.rank == rank; });
      if (column->text == shared_text && !shares) continue;
      if (rank > 0 && used + kBetween + column->width > width) continue;
      used += kBetween + column->width;
      shown_[static_cast<std::size_t>(column - kColumns.begin())] = true;
    }
    bar_ = std::min(kWidestBar, kNarrowestBar + (width > used ? width - used : 0));
  }

  std::string heading(std::string word) const {
    std::transform(word.begin(), word.end(), word.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
    std::string line = left(word, name_);
    for (std::size_t i = 0; i < kColumns.size(); ++i) {
      if (shown_[i]) line += fmt::format("  {}", right(kColumns[i].title, kColumns[i].width));
    }
    return terminal_.paint(Style::bold, line) + "\n";
  }

  std::string line(const ReportRow& row) const {
    std::string line = left(fitted(terminal_.show(row.name), name_, terminal_.charset), name_);
    for (std::size_t i = 0; i < kColumns.size(); ++i) {
      if (!shown_[i]) continue;
      line += fmt::format("  {}", right(kColumns[i].text(*row.figures), kColumns[i].width));
    }
    const std::string drawn = bar(*row.figures);
    return drawn.empty() ? line + "\n" : fmt::format("{}  {}\n", line, drawn);
  }

 private:
  // The share that was idle looks different.
  std::string bar(const Figures& figures) const {
    const double all = figures.held_hours();
    if (all <= 0 || most_ <= 0) return "";
    const auto cells = std::max<std::size_t>(rounded(static_cast<double>(bar_) * all / most_), 1);
    const auto idle = std::min<std::size_t>(
        rounded(static_cast<double>(cells) * std::max(figures.idle, 0.0) / all), cells);
    const bool ascii = terminal_.charset == Charset::ascii;
    return terminal_.paint(Style::notice, repeated(ascii ? "#" : "\u2588", cells - idle)) +
           terminal_.paint(Style::warning, repeated(ascii ? "." : "\u2591", idle));
  }

  const Terminal& terminal_;
  std::size_t name_;
  std::size_t bar_ = 0;
  double most_ = 0;
  std::array<bool, kColumns.size()> shown_{};
};

std::string section_text(const ReportSection& section, std::size_t most, const Terminal& terminal) {
  const Table table(section, terminal);
  std::string text = table.heading(section.word);
  for (std::size_t i = 0; i < std::min(most, section.rows.size()); ++i) {
    text += table.line(section.rows[i]);
  }
  if (section.rows.size() > most) {
    text += fmt::format("and {} more: berth report --by {}\n", section.rows.size() - most,
                        section.word);
  }
  return text;
}

std::string facts_text(const Report& report, const Terminal& terminal) {
  constexpr std::size_t kName = std::string_view("Utilization  ").size();
  std::string text;
  for (const ReportFact& fact : report_facts(report)) {
    const std::string block = wrapped(fact.text, terminal.width, kName);
    text += terminal.paint(Style::bold, left(fact.name, kName)) + block.substr(kName) + "\n";
  }
  return text;
}

std::string idle_leases_text(const Report& report, const Terminal& terminal) {
  constexpr std::size_t kLength = 7;
  constexpr std::size_t kWidestUser = 12;
  constexpr std::size_t kWidestGpus = 9;
  constexpr std::size_t kNarrowestCommand = 24;
  constexpr std::size_t kIndent = 4;
  if (report.idle.empty()) return "";
  std::size_t user = std::strlen("USER");
  std::size_t gpus = std::strlen("GPU");
  for (const IdleLease& lease : report.idle) {
    user =
        std::max(user, display_width(terminal.show(user_name(lease.owner.uid, lease.owner.user))));
    gpus = std::max(gpus, display_width(terminal.show(gpu_names(lease.gpus))));
  }
  user = std::min(user, kWidestUser);
  gpus = std::min(gpus, kWidestGpus);
  const auto cell = [&](std::string_view words, std::size_t width) {
    return left(fitted(terminal.show(words), width, terminal.charset), width);
  };
  const std::size_t width = terminal.width.value_or(~0UL);
  const std::size_t before = 2 * kLength + user + gpus + 4 * kBetween;
  const bool own_line = width < before + kNarrowestCommand;  // for the command
  std::string text = heading(
      terminal, wrapped("Leases that were idle at least half of their time", terminal.width, 0));
  text += terminal.paint(
      Style::bold, fmt::format("{}  {}  {}  {}{}", right("IDLE", kLength), right("OF", kLength),
                               left("USER", user), left("GPU", gpus), own_line ? "" : "  COMMAND"));
  text += '\n';
  for (const IdleLease& lease : report.idle) {
    text += fmt::format("{}  {}  {}  {}", right(length_text(lease.idle), kLength),
                        right(length_text(lease.lasted), kLength),
                        cell(user_name(lease.owner.uid, lease.owner.user), user),
                        cell(gpu_names(lease.gpus), gpus));
    text += own_line ? fmt::format("\n{}", left("", kIndent)) : "  ";
    const std::size_t used = own_line ? kIndent : before;
    text += fitted(terminal.show(command_and_label(lease)), width > used ? width - used : 0,
                   terminal.charset);
    text += '\n';
  }
  return text;
}

// What the signs mean that are there.
std::string signs_text(const std::vector<ReportSection>& sections, const Terminal& terminal) {
  const bool partly = std::any_of(sections.begin(), sections.end(), is_partly_measured);
  std::string text;
  for (const ReportSection& section : sections) {
    const bool idle = std::any_of(section.rows.begin(), section.rows.end(),
                                  [](const ReportRow& row) { return row.figures->idle > 0; });
    if (idle) text = fmt::format("{} idle", terminal.charset == Charset::ascii ? "." : "\u2591");
  }
  if (partly) text += fmt::format("{}~ less than 90% was measured", text.empty() ? "" : "; ");
  return text.empty() ? "" : fmt::format("\n{}\n", wrapped(text, terminal.width, 0));
}

}  // namespace

std::string report_text(const Report& report, ReportBy by, const Terminal& terminal) {
  const auto sections = report_sections(report, by);
  std::string text;
  if (by == ReportBy::all) {
    text += terminal.paint(Style::bold, fmt::format("{} to {}", local_day(report.since),
                                                    local_day(report.until))) +
            "\n\n";
    text += facts_text(report, terminal);
  }
  for (const ReportSection& section : sections) {
    if (by != ReportBy::all) {
      text += section_text(section, section.rows.size(), terminal);
    } else if (section.by == ReportBy::day) {
      text += heading(terminal, "GPU-hours by day") + day_chart(report.days, terminal);
    } else {
      text += fmt::format("\n{}", section_text(section, kMostRows, terminal));
    }
  }
  if (by == ReportBy::all) text += idle_leases_text(report, terminal);
  return text + signs_text(sections, terminal);
}

}  // namespace berth
