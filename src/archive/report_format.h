// The sections of `berth report` and the text of its figures, for all output formats.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "archive/report.h"

namespace berth {

enum class ReportBy { all, user, job, gpu, day };

struct ReportRow {
  std::string name;  // comes from users: escape it for a terminal or HTML
  const Figures* figures;
};

struct ReportSection {
  ReportBy by;
  const char* title;  // "By user"
  const char* word;   // "user", the value of --by
  std::vector<ReportRow> rows;
};

// All sections, or the one that `by` selects. They point into the report.
std::vector<ReportSection> make_report_sections(const Report& report, ReportBy by);

// "0,1"; the UUID of a GPU whose index is unknown.
std::string format_gpu_list(const std::vector<GpuIdentity>& gpus);
std::string format_command_and_label(const IdleLease& lease);

// The units of all figures of a report: hours and kWh or, where these would be small fractions (a
// new installation), minutes or seconds, and Wh.
struct ReportUnits {
  const char* time = "hours";
  double time_per_hour = 1;
  const char* energy = "kWh";
  double energy_per_kwh = 1;

  double time_value(double hours) const { return time_per_hour * hours; }
  double energy_value(double kwh) const { return energy_per_kwh * kwh; }
};
ReportUnits choose_units(const Figures& total);

std::string number_text(double value);  // "12.3", "1234"; "<0.1" if it would be rounded to zero
std::string time_text(double hours, const ReportUnits& units);  // a number, without the unit
std::string percent_text(std::optional<double> percent);        // "63%", or "-"
std::string utilization_text(const Figures& figures);           // "~": much is not measured
std::string idle_text(const Figures& figures);                  // the same
std::string energy_text(const Figures& figures, const ReportUnits& units);  // the same
std::string waited_text(const Figures& figures);                            // the median, or "-"
std::string seconds_text(double seconds);                                   // "1h 5m"
bool is_partly_measured(const ReportSection& section);  // does a row have a "~"?

// A fact about the whole report: "GPU-hours", "12.0", "3.1 of the 12.0 measured were idle (26%)".
struct ReportFact {
  std::string name;
  std::string value;
  std::string text;  // may be empty
};
std::vector<ReportFact> make_report_facts(const Report& report);

}  // namespace berth
