// The HTML page of a report; see report_html.h.
#include "cli/output/report_html.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "base/time_text.h"
#include "base/users.h"
#include "cli/output/svg_plot.h"

namespace berth {
namespace {

constexpr std::size_t kMaxHtmlRows = 200;

// The page has no script, and its policy forbids scripts: text that users wrote could not run even
// if it were not escaped.
constexpr const char* kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
:root { --page: #fff; --card: #f4f6f8; --text: #1b1f24; --dim: #57606a; --line: #d4d9df;
  --used: #2f6fde; --leased: #a9c4f5; --idle: #e08a1e; --shared: #1f9d8b; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171b; --card: #1e2329; --text: #e4e8ec; --dim: #9aa4af; --line: #353c45;
    --used: #5b95f5; --leased: #33507f; --idle: #f0a542; --shared: #3cc4ae; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 78rem; background: var(--page);
  color: var(--text); font: 16px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem; }
p { margin: .25rem 0; color: var(--dim); }
dl { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr));
  margin: 1.25rem 0 0; }
dl div { background: var(--card); border-radius: .5rem; padding: .75rem 1rem; }
dt { color: var(--dim); font-size: .85rem; }
dd { margin: 0; }
dd.value { font-size: 1.6rem; line-height: 1.3; }
dd.text { color: var(--dim); font-size: .85rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .875rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; text-align: right; border-bottom: 1px solid var(--line); }
th { color: var(--dim); font-weight: 600; vertical-align: bottom; }
td { white-space: nowrap; }
th.text, td.text { text-align: left; }
th:first-child, td:first-child { padding-left: 0; }
th:last-child, td:last-child { padding-right: 0; }
td.name { white-space: normal; overflow-wrap: anywhere; max-width: 20rem; min-width: 12rem; }
td.command { white-space: normal; overflow-wrap: anywhere; min-width: 10rem; }
th.bar, td.bar { width: 20%; min-width: 8rem; }
th.bar span { display: flex; justify-content: space-between; }
svg { display: block; overflow: visible; }
svg text { fill: var(--dim); font-size: 12px; }
svg text.value { text-anchor: end; }
svg text.tick { text-anchor: middle; }
rect.used, i.used { fill: var(--used); background: var(--used); }
rect.leased, i.leased { fill: var(--leased); background: var(--leased); }
rect.idle, i.idle { fill: var(--idle); background: var(--idle); }
rect.shared, i.shared { fill: var(--shared); background: var(--shared); }
line.mark { stroke: var(--line); }
.key { display: inline-block; margin-right: .75rem; }
.key i { display: inline-block; width: .75rem; height: .75rem; border-radius: 2px;
  margin-right: .35rem; }
.legend { font-size: .85rem; margin-top: 1rem; }
.plots { display: grid; gap: 2rem 3rem; }
@media (min-width: 60rem) { .plots { grid-template-columns: 1fr 1fr; } }
figure { margin: 0; padding-left: 3rem; min-width: 0; display: flex; flex-direction: column;
  justify-content: space-between; }
figcaption { margin: 0 0 .75rem -3rem; color: var(--dim); font-size: .85rem; }
figcaption b { color: var(--text); font-size: .95rem; }
details { margin-top: 1.5rem; }
summary { cursor: pointer; padding: .5rem 0; }
@media (max-width: 72rem) {
  table, tbody { display: block; }
  tr:first-child { display: none; }
  tr { display: grid; grid-template-columns: repeat(auto-fill, minmax(6.5rem, 1fr));
    gap: .4rem .75rem; padding: .75rem 0; border-bottom: 1px solid var(--line); }
  td, th:first-child, td:first-child { padding: 0; border: 0; text-align: left; min-width: 0; }
  td::before { content: attr(data-label); display: block; color: var(--dim); font-size: .75rem; }
  td { white-space: normal; }
  td.name, td.bar, td.command { grid-column: 1 / -1; max-width: none; width: auto; }
  td.name { font-weight: 600; }
  td.name::before, td.bar::before { content: none; }
}
</style>
)";

// Bars of leased GPU time: whole GPUs in use, whole GPUs idle, shared GPUs.
PlotBar time_bar(const ReportRow& row, const ReportUnits& units) {
  const Figures& figures = *row.figures;
  const double idle = std::clamp(figures.idle, 0.0, figures.gpu_hours);
  return {row.name,
          fmt::format("{} GPU-{}", time_text(figures.held_hours(), units), units.time),
          {{"used", units.time_value(figures.gpu_hours - idle)},
           {"idle", units.time_value(idle)},
           {"shared", units.time_value(figures.shared_gpu_hours)}}};
}

std::string legend_key(std::string_view kind, std::string_view text) {
  return fmt::format("<span class=\"key\"><i class=\"{}\"></i>{}</span> ", kind, text);
}

std::string time_legend(bool shares) {
  return legend_key("used", "whole GPUs, not idle") + legend_key("idle", "whole GPUs, idle") +
         (shares ? legend_key("shared", "shared GPUs") : "");
}

// A column of the tables: its header, and the text of a cell.
struct HtmlColumn {
  std::string title;
  std::string (*text)(const Figures& figures, const ReportUnits& units);
};

std::vector<HtmlColumn> make_columns(const Figures& total, const ReportUnits& units) {
  std::vector<HtmlColumn> columns{
      {fmt::format("GPU-{}", units.time), [](const Figures& figures, const ReportUnits& one) {
         return time_text(figures.gpu_hours, one);
       }}};
  const auto add = [&](std::string title, auto text) {
    columns.push_back({std::move(title), text});
  };
  if (total.shared_gpu_hours > 0) {
    add(fmt::format("Shared GPU-{}", units.time),
        [](const Figures& figures, const ReportUnits& one) {
          return time_text(figures.shared_gpu_hours, one);
        });
  }
  if (total.capacity_hours > 0) {
    add("Occupancy", [](const Figures& figures, const ReportUnits& /*one*/) {
      return percent_text(figures.occupancy_pct());
    });
  }
  add("Utilization",
      [](const Figures& figures, const ReportUnits& /*one*/) { return utilization_text(figures); });
  add("Idle",
      [](const Figures& figures, const ReportUnits& /*one*/) { return idle_text(figures); });
  if (total.energy_kwh()) add(fmt::format("Energy ({})", units.energy), energy_text);
  add("Leases", [](const Figures& figures, const ReportUnits& /*one*/) {
    return fmt::format("{}", figures.leases);
  });
  add("Waited (median)",
      [](const Figures& figures, const ReportUnits& /*one*/) { return waited_text(figures); });
  add("Waited (95% at most)", [](const Figures& figures, const ReportUnits& /*one*/) {
    return figures.waits ? seconds_text(figures.waits->p95_s) : std::string("-");
  });
  return columns;
}

std::string table_row(const ReportRow& row, const std::vector<HtmlColumn>& columns,
                      const ReportUnits& units, double max_time) {
  std::string html = fmt::format("<tr><td class=\"text name\">{}</td><td class=\"bar\">{}</td>",
                                 html_text(row.name), bar_plot(time_bar(row, units), max_time));
  for (const HtmlColumn& column : columns) {
    html += fmt::format("<td data-label=\"{}\">{}</td>", column.title,
                        html_text(column.text(*row.figures, units)));
  }
  return html + "</tr>\n";
}

const char* row_header(ReportBy by) {
  if (by == ReportBy::user) return "User";
  if (by == ReportBy::job) return "Job";
  return by == ReportBy::gpu ? "GPU" : "Day";
}

std::string section_table(const ReportSection& section, const Figures& total) {
  const ReportUnits units = choose_units(total);
  const std::vector<HtmlColumn> columns = make_columns(total, units);
  double max_time = 0;
  for (const ReportRow& row : section.rows)
    max_time = std::max(max_time, units.time_value(row.figures->held_hours()));
  const std::size_t shown = std::min(section.rows.size(), kMaxHtmlRows);
  // The latest days; of other sections the rows with the most hours, which come first.
  const std::size_t from = section.by == ReportBy::day ? section.rows.size() - shown : 0;
  std::string html = fmt::format(
      "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"{0}\"><table>\n"
      "<tr><th scope=\"col\" class=\"text\">{3}</th><th scope=\"col\" class=\"bar\">"
      "<span><span>0</span><span>{1} GPU-{2}</span></span></th>",
      section.title, number_text(max_time), units.time, row_header(section.by));
  for (const HtmlColumn& column : columns)
    html += fmt::format("<th scope=\"col\">{}</th>", column.title);
  html += "</tr>\n";
  for (std::size_t i = from; i < from + shown; ++i)
    html += table_row(section.rows[i], columns, units, max_time);
  html += "</table></div>\n";
  if (shown < section.rows.size()) {
    html += fmt::format("<p>and {} more: <code>berth report --by {}</code></p>\n",
                        section.rows.size() - shown, section.word);
  }
  if (is_partly_measured(section)) html += "<p>~ less than 90% was measured</p>\n";
  return html;
}

// A plot by day. Empty if all its values are zero.
struct DayPlot {
  std::string title;
  std::string caption;   // HTML
  double max_value = 0;  // at least this; the highest column counts if it is higher
  std::vector<PlotBar> columns{};

  void add(PlotBar column) {
    max_value = std::max(max_value, column.sum());
    columns.push_back(std::move(column));
  }
  std::string html() const {
    const bool has_values = std::any_of(columns.begin(), columns.end(),
                                        [](const PlotBar& column) { return column.sum() > 0; });
    if (!has_values) return "";
    return fmt::format("<figure><figcaption><b>{}</b><br>{}</figcaption>\n{}</figure>\n", title,
                       caption, column_plot(fmt::format("{} by day", title), columns, max_value));
  }
};

// A unit in which the longest waiting time is a readable number.
std::pair<const char*, double> wait_unit(const ReportSection& section) {
  double longest = 0;
  for (const ReportRow& row : section.rows)
    longest = std::max(longest, row.figures->waits ? row.figures->waits->p95_s : 0);
  if (longest >= 7200) return {"hours", 3600};
  return longest >= 120 ? std::pair{"minutes", 60.0} : std::pair{"seconds", 1.0};
}

// The part of all GPU time that was leased, and the part of it that was used.
PlotBar occupancy_column(const ReportRow& row) {
  const Figures& figures = *row.figures;
  const double leased = std::min(figures.occupancy_pct().value_or(0), 100.0);
  const double used = leased * std::min(figures.utilization_pct().value_or(0), 100.0) / 100;
  return {row.name,
          fmt::format("{} leased, utilization {}", percent_text(figures.occupancy_pct()),
                      utilization_text(figures)),
          {{"used", used}, {"leased", leased - used}}};
}

// "11-16", or "2026-11" if there are more days than a year has.
std::string day_tick(const std::string& day, std::size_t days) {
  constexpr std::size_t kMaxDays = 366;
  return days <= kMaxDays ? day.substr(5) : day.substr(0, 7);
}

std::string day_plots(const ReportSection& section, const Figures& total) {
  const ReportUnits units = choose_units(total);
  const auto [unit, unit_s] = wait_unit(section);
  DayPlot time{fmt::format("GPU-{} leased", units.time), time_legend(total.shared_gpu_hours > 0)};
  DayPlot occupancy{"Occupancy, in percent of the time of all GPUs",
                    legend_key("used", "leased and used (occupancy times utilization)") +
                        legend_key("leased", "leased, not used or not measured"),
                    100};
  DayPlot utilization{"Utilization, in percent",
                      "average of the GPUs while they were leased; a day without a column was not "
                      "measured, or was 0",
                      100};
  DayPlot energy{fmt::format("Energy, in {}", units.energy),
                 "drawn by the GPUs while they were leased"};
  DayPlot waiting{fmt::format("Waiting time, in {}", unit),
                  "95% of the leases granted on this day waited at most that long"};
  for (const ReportRow& row : section.rows) {
    const Figures& figures = *row.figures;
    const std::string tick = day_tick(row.name, section.rows.size());
    const auto add = [&](DayPlot& plot, PlotBar column) {
      column.tick = tick;
      plot.add(std::move(column));
    };
    add(time, time_bar(row, units));
    add(occupancy, occupancy_column(row));
    add(utilization,
        {row.name, utilization_text(figures), {{"used", figures.utilization_pct().value_or(0)}}});
    add(energy, {row.name,
                 fmt::format("{} {}", energy_text(figures, units), units.energy),
                 {{"used", units.energy_value(figures.energy_kwh().value_or(0))}}});
    const double waited = figures.waits ? figures.waits->p95_s : 0;
    add(waiting,
        {row.name, figures.waits ? seconds_text(waited) : "-", {{"used", waited / unit_s}}});
  }
  std::string plots;
  for (const DayPlot* plot : {&time, &occupancy, &utilization, &energy, &waiting})
    plots += plot->html();
  return fmt::format("<div class=\"plots\">\n{}</div>\n", plots);
}

std::string section_html(const ReportSection& section, const Figures& total) {
  const std::string table = section_table(section, total);
  if (section.by != ReportBy::day)
    return fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", section.title, table);
  return fmt::format(
      "<section>\n<h2>{}</h2>\n{}<details>\n<summary>The same as a table</summary>\n{}</details>\n"
      "</section>\n",
      section.title, day_plots(section, total), table);
}

std::string idle_html(const std::vector<IdleLease>& leases) {
  if (leases.empty()) return "";
  std::string rows;
  for (const IdleLease& lease : leases) {
    rows += fmt::format(
        "<tr><td class=\"text\" data-label=\"Granted\">{}</td>"
        "<td class=\"text\" data-label=\"User\">{}</td><td class=\"text\" "
        "data-label=\"GPU\">{}</td>"
        "<td data-label=\"Idle\">{}</td><td data-label=\"Duration\">{}</td>"
        "<td class=\"text command\" data-label=\"Command\">{}</td></tr>\n",
        html_text(format_local_time(lease.granted, "%Y-%m-%d %H:%M")),
        html_text(user_name(lease.owner.uid, lease.owner.user)),
        html_text(format_gpu_list(lease.gpus)), html_text(format_whole_seconds(lease.idle)),
        html_text(format_whole_seconds(lease.lasted)), html_text(format_command_and_label(lease)));
  }
  return fmt::format(
      "<section>\n<h2>Leases that were idle at least half of their time</h2>\n"
      "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"Idle leases\"><table>\n"
      "<tr><th scope=\"col\" class=\"text\">Granted</th>"
      "<th scope=\"col\" class=\"text\">User</th><th scope=\"col\" class=\"text\">GPU</th>"
      "<th scope=\"col\">Idle</th><th scope=\"col\">Duration</th>"
      "<th scope=\"col\" class=\"text\">Command</th></tr>\n{}</table></div>\n</section>\n",
      rows);
}

}  // namespace

std::string report_html(const Report& report, ReportBy by, const std::string& host) {
  const std::string title = html_text(fmt::format("berth report: {}", host));
  std::string page = kHead;
  page +=
      fmt::format("<title>{}</title>\n</head>\n<body>\n<h1>{}</h1>\n<p>{} to {}</p>\n<dl>\n", title,
                  title, format_local_date(report.since), format_local_date(report.until));
  for (const ReportFact& fact : make_report_facts(report)) {
    page += fmt::format("<div><dt>{}</dt><dd class=\"value\">{}</dd>", fact.name,
                        html_text(fact.value));
    if (!fact.text.empty()) page += fmt::format("<dd class=\"text\">{}</dd>", html_text(fact.text));
    page += "</div>\n";
  }
  page += "</dl>\n";
  if (report.total.leases == 0) {
    page += "<p>No leases found in this time.</p>\n";
  } else {
    page += fmt::format("<p class=\"legend\">Bars in the tables: {}</p>\n",
                        time_legend(report.total.shared_gpu_hours > 0));
    // The days come first: their plots give an overview.
    std::vector<ReportSection> sections = make_report_sections(report, by);
    std::rotate(sections.begin(), sections.end() - 1, sections.end());
    for (const ReportSection& section : sections) page += section_html(section, report.total);
    if (by == ReportBy::all) page += idle_html(report.idle);
  }
  return page + "</body>\n</html>\n";
}

}  // namespace berth
