// Tables and bar charts of a report, drawn with characters; see report_text.h.
#include "cli/output/report_text.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <vector>

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
  std::string title;
  std::size_t width;
  unsigned rank;  // a narrow terminal drops the column with the highest rank first
  bool (*has_values)(const Figures& figures);
  std::string (*text)(const Figures& figures, const ReportUnits& units);
};

std::string upper_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return text;
}

bool is_known(const Figures& /*figures*/) {
  return true;
}

std::vector<ReportColumn> make_columns(const ReportUnits& units) {
  const std::string time_title = upper_case(fmt::format("GPU-{}", units.time));
  return {{time_title, time_title.size(), 0, is_known,
           [](const Figures& figures, const ReportUnits& one) {
             return time_text(figures.gpu_hours, one);
           }},
          {"SHARED", 8, 2, [](const Figures& figures) { return figures.shared_gpu_hours > 0; },
           [](const Figures& figures, const ReportUnits& one) {
             return time_text(figures.shared_gpu_hours, one);
           }},
          {"OCCUPIED", 8, 3, [](const Figures& figures) { return figures.capacity_hours > 0; },
           [](const Figures& figures, const ReportUnits& /*one*/) {
             return percent_text(figures.occupancy_pct());
           }},
          {"UTIL", 5, 1, is_known,
           [](const Figures& figures, const ReportUnits& /*one*/) {
             return utilization_text(figures);
           }},
          {"IDLE", 5, 4, is_known,
           [](const Figures& figures, const ReportUnits& /*one*/) { return idle_text(figures); }},
          {upper_case(units.energy), 7, 5,
           [](const Figures& figures) { return figures.energy_kwh().has_value(); }, energy_text},
          {"LEASES", 6, 7, is_known,
           [](const Figures& figures, const ReportUnits& /*one*/) {
             return fmt::format("{}", figures.leases);
           }},
          {"WAITED", 7, 6, is_known, [](const Figures& figures, const ReportUnits& /*one*/) {
             return waited_text(figures);
           }}};
}

// A table that fits the terminal: a narrow terminal gets fewer columns.
class ReportTable {
 public:
  ReportTable(const ReportSection& section, const ReportUnits& units, const Terminal& terminal)
      : terminal_(terminal), units_(units), columns_(make_columns(units)) {
    const std::size_t width = terminal.width.value_or(kDefaultWidth);
    name_width_ = std::strlen(section.word);
    for (const ReportRow& row : section.rows) {
      name_width_ = std::max(name_width_, display_width(terminal.escape(row.name)));
      max_hours_ = std::max(max_hours_, row.figures->held_hours());
    }
    name_width_ = std::min({name_width_, kMaxNameWidth, std::max<std::size_t>(width * 3 / 10, 10)});
    std::erase_if(columns_, [&](const ReportColumn& column) {
      return std::none_of(section.rows.begin(), section.rows.end(),
                          [&](const ReportRow& row) { return column.has_values(*row.figures); });
    });
    std::size_t used = used_width();
    while (used > width && columns_.size() > 1) {
      columns_.erase(std::max_element(
          columns_.begin(), columns_.end(),
          [](const ReportColumn& a, const ReportColumn& b) { return a.rank < b.rank; }));
      used = used_width();
    }
    bar_width_ = std::min(kMaxBarWidth, kMinBarWidth + (width > used ? width - used : 0));
  }

  std::string heading(const std::string& word) const {
    std::string line = align_left(upper_case(word), name_width_);
    for (const ReportColumn& column : columns_)
      line += fmt::format("  {}", align_right(column.title, column.width));
    return terminal_.paint(Style::bold, line) + "\n";
  }

  std::string line(const ReportRow& row) const {
    std::string line = align_left(
        truncate_text(terminal_.escape(row.name), name_width_, terminal_.charset), name_width_);
    for (const ReportColumn& column : columns_)
      line += fmt::format("  {}", align_right(column.text(*row.figures, units_), column.width));
    const std::string bar_text = bar(*row.figures);
    return bar_text.empty() ? line + "\n" : fmt::format("{}  {}\n", line, bar_text);
  }

 private:
  std::size_t used_width() const {
    std::size_t used = name_width_ + kColumnGap + kMinBarWidth;
    for (const ReportColumn& column : columns_) used += kColumnGap + column.width;
    return used;
  }

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
  ReportUnits units_;
  std::vector<ReportColumn> columns_;  // that are shown
  std::size_t name_width_;
  std::size_t bar_width_ = 0;
  double max_hours_ = 0;
};

std::string section_text(const ReportSection& section, const ReportUnits& units,
                         std::size_t max_rows, const Terminal& terminal) {
  const ReportTable table(section, units, terminal);
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
    const std::string line =
        fact.text.empty() ? fact.value : fmt::format("{}: {}", fact.value, fact.text);
    const std::string block = wrap_text(line, terminal.width, kNameWidth);
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
  const ReportUnits units = choose_units(report.total);
  std::string text;
  if (by == ReportBy::all) {
    text += terminal.paint(Style::bold, fmt::format("{} to {}", format_local_date(report.since),
                                                    format_local_date(report.until))) +
            "\n\n";
    text += facts_text(report, terminal);
  }
  for (const ReportSection& section : sections) {
    if (by != ReportBy::all) {
      text += section_text(section, units, section.rows.size(), terminal);
    } else if (section.by == ReportBy::day) {
      text += heading(terminal, fmt::format("GPU-{} by day", units.time)) +
              format_day_chart(report.days, units, terminal);
    } else {
      text += fmt::format("\n{}", section_text(section, units, kMaxRows, terminal));
    }
  }
  if (by == ReportBy::all) text += idle_leases_text(report, terminal);
  return text + legend_text(sections, terminal);
}

}  // namespace berth
