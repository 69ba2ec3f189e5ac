// Writes a report as CSV; see report_csv.h.
#include "cli/output/report_csv.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <optional>
#include <vector>

#include "base/text.h"
#include "base/time_text.h"
#include "base/users.h"

namespace berth {
namespace {

std::string csv_number(double value) {
  std::string text = fmt::format("{:.6f}", std::max(value, 0.0));
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string csv_number(std::optional<double> value) {
  return value ? csv_number(*value) : "";
}

std::string csv_waited(const Figures& figures, double WaitTimes::*which) {
  return figures.waits ? fmt::format("{:.3f}", (*figures.waits).*which) : "";
}

struct CsvColumn {
  const char* name;
  std::string (*value)(const Figures& figures);
};

// The names are those of the JSON output.
constexpr std::array<CsvColumn, 17> kCsvColumns{{
    {"leases", [](const Figures& f) { return fmt::format("{}", f.leases); }},
    {"running", [](const Figures& f) { return fmt::format("{}", f.running); }},
    {"lost", [](const Figures& f) { return fmt::format("{}", f.lost); }},
    {"gpu_hours", [](const Figures& f) { return csv_number(f.gpu_hours); }},
    {"shared_gpu_hours", [](const Figures& f) { return csv_number(f.shared_gpu_hours); }},
    {"shared_gib_hours", [](const Figures& f) { return csv_number(f.shared_gib_hours); }},
    {"occupancy_pct", [](const Figures& f) { return csv_number(f.occupancy_pct()); }},
    {"occupied_gpu_hours", [](const Figures& f) { return csv_number(f.occupied_hours); }},
    {"utilization_pct", [](const Figures& f) { return csv_number(f.utilization_pct()); }},
    {"utilization_measured_gpu_hours",
     [](const Figures& f) { return csv_number(f.utilization_measured); }},
    {"idle_gpu_hours",
     [](const Figures& f) { return f.idle_measured > 0 ? csv_number(f.idle) : ""; }},
    {"idle_measured_gpu_hours", [](const Figures& f) { return csv_number(f.idle_measured); }},
    {"energy_kwh", [](const Figures& f) { return csv_number(f.energy_kwh()); }},
    {"energy_measured_gpu_hours",
     [](const Figures& f) { return csv_number(f.cards.measured_hours); }},
    {"waited_s_median", [](const Figures& f) { return csv_waited(f, &WaitTimes::median_s); }},
    {"waited_s_p95", [](const Figures& f) { return csv_waited(f, &WaitTimes::p95_s); }},
    {"waited_s_longest", [](const Figures& f) { return csv_waited(f, &WaitTimes::longest_s); }},
}};

// What a row is about. The GPU's fields are empty in the other rows.
struct RowName {
  const char* by;
  std::string name;
  std::string host{};
  std::string uuid{};
  std::string gpu_name{};
};

std::string csv_row(const RowName& row, const Figures& figures) {
  std::string line = fmt::format("{},{},{},{},{}", row.by, csv_field(row.name), csv_field(row.host),
                                 csv_field(row.uuid), csv_field(row.gpu_name));
  for (const CsvColumn& column : kCsvColumns) line += "," + column.value(figures);
  return line + "\n";
}

// `text` without the blanks of Unicode at its start. Zero-width characters and other controls have
// been made visible by printable().
std::string_view without_leading_blanks(std::string_view text) {
  constexpr std::array<std::string_view, 17> kBlanks{
      " ",      "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005",
      "\u2006", "\u2007", "\u2008", "\u2009", "\u200a", "\u202f", "\u205f", "\u3000"};
  for (;;) {
    const auto* const blank =
        std::find_if(kBlanks.begin(), kBlanks.end(),
                     [&](std::string_view one) { return text.starts_with(one); });
    if (blank == kBlanks.end()) return text;
    text.remove_prefix(blank->size());
  }
}

// Excel also takes the full-width forms of these characters for the start of a formula.
bool starts_formula(std::string_view text) {
  constexpr std::array<std::string_view, 8> kStarts{"=",      "+",      "-",      "@",
                                                    "\uff1d", "\uff0b", "\uff0d", "\uff20"};
  const std::string_view start_of_text = without_leading_blanks(text);
  return std::any_of(kStarts.begin(), kStarts.end(),
                     [&](std::string_view start) { return start_of_text.starts_with(start); });
}

}  // namespace

std::string csv_field(std::string_view text) {
  std::string field = printable(text);
  if (starts_formula(field)) field.insert(0, 1, '\'');
  // Some spreadsheets take semicolons for separators.
  if (field.find_first_of(",;\"") == std::string::npos) return field;
  std::string quoted = "\"";
  for (const char c : field) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string report_csv(const Report& report, ReportBy by) {
  std::string text = "by,name,host,uuid,gpu_name";
  for (const CsvColumn& column : kCsvColumns) text += fmt::format(",{}", column.name);
  text += '\n';
  const auto add = [&](ReportBy which, const auto& groups, const auto& row_name) {
    if (by != ReportBy::all && by != which) return;
    for (const auto& group : groups) text += csv_row(row_name(group.key), group.figures);
  };
  if (by == ReportBy::all) text += csv_row({"total", ""}, report.total);
  add(ReportBy::user, report.users, [](const LeaseOwner& user) {
    return RowName{"user", user_name(user.uid, user.user)};
  });
  add(ReportBy::job, report.jobs, [](const std::string& job) { return RowName{"job", job}; });
  add(ReportBy::gpu, report.gpus, [](const GpuIdentity& gpu) {
    return RowName{"gpu", gpu.index, gpu.host, gpu.uuid, gpu.name};
  });
  add(ReportBy::day, report.days, [](TimePoint day) {
    return RowName{"day", format_local_date(day)};
  });
  return text;
}

}  // namespace berth
