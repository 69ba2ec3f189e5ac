// What the forms of `berth report` have in common: its sections, and how figures read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "archive/report.h"

namespace berth {

enum class ReportBy { all, user, job, gpu, day };

struct ReportRow {
  std::string name;  // may contain anything
  const Figures* figures;
};

struct ReportSection {
  ReportBy by;
  const char* title;  // "By user"
  const char* word;   // "user", as --by has it
  std::vector<ReportRow> rows;
};

// All, or the one that was asked for. They point into the report.
std::vector<ReportSection> make_report_sections(const Report& report, ReportBy by);

// "0" or, if nobody knew an index, the UUID; several with commas.
std::string format_gpu_list(const std::vector<GpuIdentity>& gpus);
std::string format_command_and_label(const IdleLease& lease);

std::string hours_text(double hours);                     // "1234.5"
std::string percent_text(std::optional<double> percent);  // "63%", or "-"
std::string utilization_text(const Figures& figures);     // with "~" where much was not measured
std::string idle_text(const Figures& figures);            // the same
std::string waited_text(const Figures& figures);          // the median, or "-"
std::string seconds_text(double seconds);                 // "1h 5m"
bool is_partly_measured(const ReportSection& section);    // is there a "~"?

// A line about all of it: "GPU-hours", "12.0, of them 3.1 idle (26%)".
struct ReportFact {
  const char* name;
  std::string text;
};
std::vector<ReportFact> make_report_facts(const Report& report);

}  // namespace berth
