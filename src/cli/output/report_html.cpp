// The HTML page of a report; see report_html.h.
#include "cli/output/report_html.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/time_text.h"
#include "base/users.h"
#include "cli/output/svg_plot.h"

namespace berth {
namespace {

constexpr std::size_t kMaxBars = 12;
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
  --used: #2f6fde; --idle: #e08a1e; --shared: #1f9d8b; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171b; --card: #1e2329; --text: #e4e8ec; --dim: #9aa4af; --line: #353c45;
    --used: #5b95f5; --idle: #f0a542; --shared: #3cc4ae; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 78rem; background: var(--page);
  color: var(--text); font: 16px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem; }
p { margin: .25rem 0; color: var(--dim); }
dl { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr));
  margin: 1.25rem 0 0; }
dl div { background: var(--card); border-radius: .5rem; padding: .75rem 1rem; }
dt { color: var(--dim); font-size: .85rem; }
dd { margin: 0; }
.beside { display: grid; gap: 1.5rem 2.5rem; align-items: start; }
.beside > * { min-width: 0; }
@media (min-width: 60rem) { .beside { grid-template-columns: 1fr 2fr; } }
.wide { overflow: auto; max-height: 64rem; }
table { border-collapse: collapse; width: 100%; font-size: .875rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th { color: var(--dim); font-weight: 600; position: sticky; top: 0; background: var(--page); }
th.text, td.text { text-align: left; }
th:first-child, td:first-child { padding-left: 0; }
td.text { max-width: 20rem; overflow: hidden; text-overflow: ellipsis; }
td.command { white-space: normal; overflow-wrap: anywhere; min-width: 10rem; max-width: none; }
svg { display: block; overflow: visible; }
svg text { fill: var(--text); font-size: 13px; }
svg text.value { text-anchor: end; fill: var(--dim); }
rect.used, i.used { fill: var(--used); background: var(--used); }
rect.idle, i.idle { fill: var(--idle); background: var(--idle); }
rect.shared, i.shared { fill: var(--shared); background: var(--shared); }
line.mark { stroke: var(--line); }
.legend { font-size: .85rem; margin-top: 1rem; }
.legend i { display: inline-block; width: .75rem; height: .75rem; border-radius: 2px;
  margin: 0 .35rem 0 1rem; }
.legend i:first-child { margin-left: 0; }
.days { display: grid; gap: 2rem; }
figure { margin: 0; }
figcaption { font-size: .85rem; color: var(--dim); margin-bottom: .35rem; }
</style>
)";

PlotBar hours_bar(const ReportRow& row) {
  const Figures& figures = *row.figures;
  const double idle = std::clamp(figures.idle, 0.0, figures.gpu_hours);
  return {row.name, fmt::format("{} h", hours_text(figures.held_hours())), figures.gpu_hours - idle,
          idle, figures.shared_gpu_hours};
}

std::string table_cell(std::string_view text) {
  return fmt::format("<td>{}</td>", html_text(text));
}

std::string section_table(const ReportSection& section, bool shares) {
  std::string rows;
  const std::size_t shown = std::min(section.rows.size(), kMaxHtmlRows);
  // The latest days; of other sections the rows with the most hours, which come first.
  const std::size_t from = section.by == ReportBy::day ? section.rows.size() - shown : 0;
  for (std::size_t i = from; i < from + shown; ++i) {
    const ReportRow& row = section.rows[i];
    const Figures& figures = *row.figures;
    rows += fmt::format("<tr><td class=\"text\" title=\"{0}\">{0}</td>", html_text(row.name));
    rows += table_cell(hours_text(figures.gpu_hours));
    if (shares) rows += table_cell(hours_text(figures.shared_gpu_hours));
    rows += table_cell(utilization_text(figures)) + table_cell(idle_text(figures)) +
            table_cell(fmt::format("{}", figures.leases)) + table_cell(waited_text(figures)) +
            table_cell(figures.waits ? seconds_text(figures.waits->p95_s) : "-") + "</tr>\n";
  }
  const auto header_cell = [](std::string_view text) {
    return fmt::format("<th scope=\"col\">{}</th>", text);
  };
  std::string html = fmt::format(
      "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"{0}\"><table>\n"
      "<tr><th scope=\"col\" "
      "class=\"text\">{0}</th>{1}{2}{3}{4}{5}{6}{7}</tr>\n{8}</table></div>\n",
      section.title, header_cell("GPU-hours"), shares ? header_cell("Shared") : "",
      header_cell("Utilization"), header_cell("Idle"), header_cell("Leases"), header_cell("Waited"),
      header_cell("95%"), rows);
  if (shown < section.rows.size()) {
    html += fmt::format("<p>and {} more: <code>berth report --by {}</code></p>\n",
                        section.rows.size() - shown, section.word);
  }
  if (is_partly_measured(section)) html += "<p>~ less than 90% was measured</p>\n";
  return html;
}

std::string figure_html(std::string_view caption, std::string_view plot) {
  return fmt::format("<figure><figcaption>{}</figcaption>\n{}</figure>\n", caption, plot);
}

// Plots of GPU-hours, utilization and waiting by day.
std::string day_plots(const ReportSection& section) {
  std::vector<PlotBar> hours;
  std::vector<PlotBar> utilization;
  std::vector<PlotBar> waiting;
  double max_hours = 0;
  double max_waited = 0;
  double max_utilization = 0;
  for (const ReportRow& row : section.rows) {
    const Figures& figures = *row.figures;
    hours.push_back(hours_bar(row));
    max_hours = std::max(max_hours, figures.held_hours());
    const double pct = figures.utilization_pct().value_or(0);
    utilization.push_back({row.name, utilization_text(figures), pct});
    max_utilization = std::max(max_utilization, pct);
    const double waited = figures.waits ? figures.waits->p95_s : 0;
    waiting.push_back({row.name, figures.waits ? seconds_text(waited) : "-", waited});
    max_waited = std::max(max_waited, waited);
  }
  std::string plots =
      figure_html("GPU-hours", column_plot("GPU-hours by day", hours, max_hours,
                                           fmt::format("{} h", hours_text(max_hours))));
  if (max_utilization > 0) {
    plots += figure_html("Utilization while leased",
                         column_plot("Utilization by day", utilization, 100, "100%"));
  }
  if (max_waited > 0) {
    plots +=
        figure_html("Waiting time that 95% of the leases did not exceed",
                    column_plot("Waiting by day", waiting, max_waited, seconds_text(max_waited)));
  }
  return fmt::format("<div class=\"days\">\n{}</div>\n", plots);
}

std::string section_html(const ReportSection& section, bool shares) {
  std::string plot;
  if (section.by == ReportBy::day) {
    plot = day_plots(section);
  } else {
    std::vector<PlotBar> bars;
    for (std::size_t i = 0; i < std::min(section.rows.size(), kMaxBars); ++i) {
      bars.push_back(hours_bar(section.rows[i]));
    }
    plot = bar_plot(fmt::format("GPU-hours {}", section.title), bars);
  }
  return fmt::format(
      "<section>\n<h2>{}</h2>\n<div class=\"beside\">\n<div>{}</div>\n<div>{}</div>\n"
      "</div>\n</section>\n",
      section.title, plot, section_table(section, shares));
}

std::string idle_html(const std::vector<IdleLease>& leases) {
  if (leases.empty()) return "";
  std::string rows;
  for (const IdleLease& lease : leases) {
    rows += fmt::format(
        "<tr><td class=\"text\">{}</td><td class=\"text\">{}</td><td class=\"text\">{}</td>"
        "<td>{}</td><td>{}</td><td class=\"text command\">{}</td></tr>\n",
        html_text(format_local_time(lease.granted)),
        html_text(user_name(lease.owner.uid, lease.owner.user)),
        html_text(format_gpu_list(lease.gpus)), html_text(format_whole_seconds(lease.idle)),
        html_text(format_whole_seconds(lease.lasted)), html_text(format_command_and_label(lease)));
  }
  return fmt::format(
      "<section>\n<h2>Leases that were idle at least half of their time</h2>\n"
      "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"Idle leases\"><table>\n"
      "<tr><th scope=\"col\" class=\"text\">Granted</th>"
      "<th scope=\"col\" class=\"text\">User</th><th scope=\"col\" class=\"text\">GPU</th>"
      "<th scope=\"col\">Idle</th><th scope=\"col\">Of</th>"
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
    page += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", fact.name, html_text(fact.text));
  }
  page += "</dl>\n";
  if (report.total.leases == 0) {
    page += "<p>No leases found in this time.</p>\n";
  } else {
    const bool shares = report.total.shared_gpu_hours > 0;
    page += fmt::format(
        "<p class=\"legend\"><i class=\"used\"></i>whole GPUs, used<i "
        "class=\"idle\"></i>whole GPUs, idle{}</p>\n",
        shares ? "<i class=\"shared\"></i>shared GPUs" : "");
    for (const ReportSection& section : make_report_sections(report, by)) {
      page += section_html(section, shares);
    }
    if (by == ReportBy::all) page += idle_html(report.idle);
  }
  return page + "</body>\n</html>\n";
}

}  // namespace berth
