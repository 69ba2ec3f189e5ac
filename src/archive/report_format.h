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

std::string hours_text(double hours);                     // "1234.5"
std::string percent_text(std::optional<double> percent);  // "63%", or "-"
std::string utilization_text(const Figures& figures);     // with "~" if much was not measured
std::string idle_text(const Figures& figures);            // the same
std::string waited_text(const Figures& figures);          // the median, or "-"
std::string seconds_text(double seconds);                 // "1h 5m"
bool is_partly_measured(const ReportSection& section);    // does a row have a "~"?

// A line about the whole report: "GPU-hours", "12.0, idle 3.1 (26%)".
struct ReportFact {
  const char* name;
  std::string text;
};
std::vector<ReportFact> make_report_facts(const Report& report);

}  // namespace berth
