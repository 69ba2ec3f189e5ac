// Tables and bar charts of a report, drawn with characters; see report_text.h.
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

constexpr std::size_t kMaxRows = 10;        // of each section, if all sections are shown
constexpr std::size_t kDefaultWidth = 100;  // if the output is not a terminal
constexpr std::size_t kMaxNameWidth = 32;
constexpr std::size_t kMinBarWidth = 8;
constexpr std::size_t kMaxBarWidth = 30;
constexpr std::size_t kColumnGap = 2;

std::string heading(const Terminal& terminal, std::string_view text) {
  return fmt::format("\n{}\n", terminal.paint(Style::bold, text));
}

struct ReportColumn {
  const char* title;
  std::size_t width;
  unsigned rank;  // a narrow terminal drops the column with the highest rank first
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

constexpr std::array<ReportColumn, 6> kColumns{{{"GPU-HOURS", 9, 0, held_text},
                                                {"SHARED", 8, 2, shared_text},
                                                {"UTIL", 5, 1, utilization_text},
                                                {"IDLE", 5, 3, idle_text},
                                                {"LEASES", 7, 5, leases_text},
                                                {"WAITED", 7, 4, waited_text}}};

// A table that fits the terminal: a narrow terminal gets fewer columns.
class ReportTable {
 public:
  ReportTable(const ReportSection& section, const Terminal& terminal) : terminal_(terminal) {
    const std::size_t width = terminal.width.value_or(kDefaultWidth);
    name_width_ = std::strlen(section.word);
    bool shares = false;
    for (const ReportRow& row : section.rows) {
      name_width_ = std::max(name_width_, display_width(terminal.escape(row.name)));
      shares = shares || row.figures->shared_gpu_hours > 0;
      max_hours_ = std::max(max_hours_, row.figures->held_hours());
    }
    name_width_ = std::min({name_width_, kMaxNameWidth, std::max<std::size_t>(width * 3 / 10, 10)});
    std::size_t used = name_width_ + kColumnGap + kMinBarWidth;
    for (unsigned rank = 0; rank < kColumns.size(); ++rank) {
      const auto* const column =
          std::find_if(kColumns.begin(), kColumns.end(),
                       [&](const ReportColumn& one) { return one.rank == rank; });
      if (column->text == shared_text && !shares) continue;
      if (rank > 0 && used + kColumnGap + column->width > width) continue;
      used += kColumnGap + column->width;
      visible_columns_[static_cast<std::size_t>(column - kColumns.begin())] = true;
    }
    bar_width_ = std::min(kMaxBarWidth, kMinBarWidth + (width > used ? width - used : 0));
  }

  std::string heading(std::string word) const {
    std::transform(word.begin(), word.end(), word.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
    std::string line = align_left(word, name_width_);
    for (std::size_t i = 0; i < kColumns.size(); ++i) {
      if (visible_columns_[i])
        line += fmt::format("  {}", align_right(kColumns[i].title, kColumns[i].width));
    }
    return terminal_.paint(Style::bold, line) + "\n";
  }

  std::string line(const ReportRow& row) const {
    std::string line = align_left(
        truncate_text(terminal_.escape(row.name), name_width_, terminal_.charset), name_width_);
    for (std::size_t i = 0; i < kColumns.size(); ++i) {
      if (!visible_columns_[i]) continue;
      line += fmt::format("  {}", align_right(kColumns[i].text(*row.figures), kColumns[i].width));
    }
    const std::string bar_text = bar(*row.figures);
    return bar_text.empty() ? line + "\n" : fmt::format("{}  {}\n", line, bar_text);
  }

 private:
  // The idle share has its own character and colour.
  std::string bar(const Figures& figures) const {
    const double all = figures.held_hours();
    if (all <= 0 || max_hours_ <= 0) return "";
    const auto cells = std::max<std::size_t>(
        round_positive(static_cast<double>(bar_width_) * all / max_hours_), 1);
    const auto idle = std::min<std::size_t>(
        round_positive(static_cast<double>(cells) * std::max(figures.idle, 0.0) / all), cells);
    const bool ascii = terminal_.charset == Charset::ascii;
    return terminal_.paint(Style::notice, repeat_text(ascii ? "#" : "\u2588", cells - idle)) +
           terminal_.paint(Style::warning, repeat_text(ascii ? "." : "\u2591", idle));
  }

  const Terminal& terminal_;
  std::size_t name_width_;
  std::size_t bar_width_ = 0;
  double max_hours_ = 0;
  std::array<bool, kColumns.size()> visible_columns_{};
};

std::string section_text(const ReportSection& section, std::size_t max_rows,
                         const Terminal& terminal) {
  const ReportTable table(section, terminal);
  std::string text = table.heading(section.word);
  for (std::size_t i = 0; i < std::min(max_rows, section.rows.size()); ++i) {
    text += table.line(section.rows[i]);
  }
  if (section.rows.size() > max_rows) {
    text += fmt::format("and {} more: berth report --by {}\n", section.rows.size() - max_rows,
                        section.word);
  }
  return text;
}

std::string facts_text(const Report& report, const Terminal& terminal) {
  constexpr std::size_t kNameWidth = std::string_view("Utilization  ").size();
  std::string text;
  for (const ReportFact& fact : make_report_facts(report)) {
    const std::string block = wrap_text(fact.text, terminal.width, kNameWidth);
    text += terminal.paint(Style::bold, align_left(fact.name, kNameWidth)) +
            block.substr(kNameWidth) + "\n";
  }
  return text;
}

std::string idle_leases_text(const Report& report, const Terminal& terminal) {
  constexpr std::size_t kIdleTimeWidth = 7;
  constexpr std::size_t kMaxIdleUserWidth = 12;
  constexpr std::size_t kMaxIdleGpusWidth = 9;
  constexpr std::size_t kMinCommandWidth = 24;
  constexpr std::size_t kIndent = 4;
  if (report.idle.empty()) return "";
  std::size_t user = std::strlen("USER");
  std::size_t gpus = std::strlen("GPU");
  for (const IdleLease& lease : report.idle) {
    user = std::max(user,
                    display_width(terminal.escape(user_name(lease.owner.uid, lease.owner.user))));
    gpus = std::max(gpus, display_width(terminal.escape(format_gpu_list(lease.gpus))));
  }
  user = std::min(user, kMaxIdleUserWidth);
  gpus = std::min(gpus, kMaxIdleGpusWidth);
  const auto cell = [&](std::string_view words, std::size_t width) {
    return align_left(truncate_text(terminal.escape(words), width, terminal.charset), width);
  };
  const std::size_t width = terminal.width.value_or(~0UL);
  const std::size_t fixed_width = 2 * kIdleTimeWidth + user + gpus + 4 * kColumnGap;
  const bool command_below = width < fixed_width + kMinCommandWidth;
  std::string text = heading(
      terminal, wrap_text("Leases that were idle at least half of their time", terminal.width, 0));
  text += terminal.paint(Style::bold,
                         fmt::format("{}  {}  {}  {}{}", align_right("IDLE", kIdleTimeWidth),
                                     align_right("OF", kIdleTimeWidth), align_left("USER", user),
                                     align_left("GPU", gpus), command_below ? "" : "  COMMAND"));
  text += '\n';
  for (const IdleLease& lease : report.idle) {
    text +=
        fmt::format("{}  {}  {}  {}", align_right(format_whole_seconds(lease.idle), kIdleTimeWidth),
                    align_right(format_whole_seconds(lease.lasted), kIdleTimeWidth),
                    cell(user_name(lease.owner.uid, lease.owner.user), user),
                    cell(format_gpu_list(lease.gpus), gpus));
    text += command_below ? fmt::format("\n{}", align_left("", kIndent)) : "  ";
    const std::size_t used = command_below ? kIndent : fixed_width;
    text += truncate_text(terminal.escape(format_command_and_label(lease)),
                          width > used ? width - used : 0, terminal.charset);
    text += '\n';
  }
  return text;
}

// Explains the signs that occur in the sections.
std::string legend_text(const std::vector<ReportSection>& sections, const Terminal& terminal) {
  const bool partly = std::any_of(sections.begin(), sections.end(), is_partly_measured);
  std::string text;
  for (const ReportSection& section : sections) {
    const bool idle = std::any_of(section.rows.begin(), section.rows.end(),
                                  [](const ReportRow& row) { return row.figures->idle > 0; });
    if (idle) text = fmt::format("{} idle", terminal.charset == Charset::ascii ? "." : "\u2591");
  }
  if (partly) text += fmt::format("{}~ less than 90% was measured", text.empty() ? "" : "; ");
  return text.empty() ? "" : fmt::format("\n{}\n", wrap_text(text, terminal.width, 0));
}

}  // namespace

std::string report_text(const Report& report, ReportBy by, const Terminal& terminal) {
  const auto sections = make_report_sections(report, by);
  std::string text;
  if (by == ReportBy::all) {
    text += terminal.paint(Style::bold, fmt::format("{} to {}", format_local_date(report.since),
                                                    format_local_date(report.until))) +
            "\n\n";
    text += facts_text(report, terminal);
  }
  for (const ReportSection& section : sections) {
    if (by != ReportBy::all) {
      text += section_text(section, section.rows.size(), terminal);
    } else if (section.by == ReportBy::day) {
      text += heading(terminal, "GPU-hours by day") + format_day_chart(report.days, terminal);
    } else {
      text += fmt::format("\n{}", section_text(section, kMaxRows, terminal));
    }
  }
  if (by == ReportBy::all) text += idle_leases_text(report, terminal);
  return text + legend_text(sections, terminal);
}

}  // namespace berth
