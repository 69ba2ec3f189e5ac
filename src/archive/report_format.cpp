// Formats the figures of a report as text; see report_format.h.
#include "archive/report_format.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>

#include "base/text.h"
#include "base/time_text.h"
#include "base/users.h"

namespace berth {
namespace {

constexpr double kMostlyMeasured = 0.9;

bool is_partial(double measured, double all) {
  return measured > 0 && measured < kMostlyMeasured * all;
}

// What a value rests on, if that is not all: "; 71% of the leased time was measured".
std::string format_measured_share(double measured, double all) {
  if (all <= 0 || measured >= 0.995 * all) return "";
  return fmt::format("; {} of the leased time was measured", percent_text(100 * measured / all));
}

// "0", or "gpu07:0" in a history of several hosts.
std::string gpu_label(const GpuIdentity& gpu) {
  if (gpu.index.empty()) return gpu.uuid;
  return gpu.host.empty() ? gpu.index : fmt::format("{}:{}", gpu.host, gpu.index);
}

std::string gpu_title(const GpuIdentity& gpu) {
  if (gpu.index.empty() || gpu.name.empty()) return gpu_label(gpu);
  return fmt::format("{} {}", gpu_label(gpu), gpu.name);
}

ReportFact leases_fact(const Report& report) {
  std::vector<std::string> parts;
  if (report.total.running > 0) parts.push_back(fmt::format("{} running", report.total.running));
  if (report.total.lost > 0) parts.push_back(fmt::format("{} lost", report.total.lost));
  if (report.nested > 0) {
    parts.push_back(fmt::format("{} more inside other leases, not counted", report.nested));
  }
  return {"Leases", fmt::format("{}", report.total.leases), join_text(parts, ", ")};
}

ReportFact time_fact(const Figures& total, const ReportUnits& units) {
  ReportFact fact{fmt::format("GPU-{}", units.time), time_text(total.gpu_hours, units), ""};
  if (total.gpu_hours <= 0) return fact;
  fact.text = "idle time was not measured";
  if (total.idle_measured > 0) {
    fact.text = fmt::format("{} of the {} measured were idle ({})", time_text(total.idle, units),
                            time_text(total.idle_measured, units), percent_text(total.idle_pct()));
  }
  return fact;
}

ReportFact shared_fact(const Figures& total, const ReportUnits& units) {
  return {"Shared", time_text(total.shared_gpu_hours, units),
          fmt::format("GPU-{0} of leases with a part of a GPU; {1} GiB-{0} reserved", units.time,
                      time_text(total.shared_gib_hours, units))};
}

ReportFact occupancy_fact(const Report& report, const ReportUnits& units) {
  const Figures& total = report.total;
  if (!total.occupancy_pct()) return {"Occupancy", "unknown", "the driver lists no GPUs"};
  return {
      "Occupancy", percent_text(total.occupancy_pct()),
      fmt::format("{} of {} GPU-{} were leased ({} {} since {})",
                  time_text(total.occupied_hours, units), time_text(total.capacity_hours, units),
                  units.time, report.gpu_count, report.gpu_count == 1 ? "GPU" : "GPUs",
                  format_local_time(report.recorded_since, "%Y-%m-%d %H:%M"))};
}

ReportFact utilization_fact(const Figures& total) {
  if (total.utilization_measured <= 0) return {"Utilization", "not measured", ""};
  return {"Utilization", percent_text(total.utilization_pct()),
          fmt::format("on average while leased{}",
                      format_measured_share(total.utilization_measured, total.held_hours()))};
}

ReportFact energy_fact(const Figures& total, const ReportUnits& units) {
  if (!total.energy_kwh()) return {"Energy", "not measured", ""};
  return {"Energy",
          fmt::format("{} {}", number_text(units.energy_value(*total.energy_kwh())), units.energy),
          fmt::format("drawn by GPUs while leased{}",
                      format_measured_share(total.cards.measured_hours, total.cards.hours))};
}

}  // namespace

std::vector<ReportSection> make_report_sections(const Report& report, ReportBy by) {
  std::vector<ReportSection> sections;
  const auto add = [&](ReportBy which, const char* title, const char* word, const auto& groups,
                       const auto& name) {
    if (by != ReportBy::all && by != which) return;
    ReportSection section{which, title, word, {}};
    for (const auto& group : groups) section.rows.push_back({name(group.key), &group.figures});
    sections.push_back(std::move(section));
  };
  add(ReportBy::user, "By user", "user", report.users,
      [](const LeaseOwner& user) { return user_name(user.uid, user.user); });
  add(ReportBy::job, "By job", "job", report.jobs,
      [](const std::string& job) { return job.empty() ? std::string("-") : job; });
  add(ReportBy::gpu, "By GPU", "gpu", report.gpus, gpu_title);
  add(ReportBy::day, "By day", "day", report.days, format_local_date);
  return sections;
}

std::string format_gpu_list(const std::vector<GpuIdentity>& gpus) {
  return join_text(gpus, ",", gpu_label);
}

std::string format_command_and_label(const IdleLease& lease) {
  if (lease.text.label.empty()) return lease.text.command;
  return fmt::format("{} ({})", lease.text.command, lease.text.label);
}

ReportUnits choose_units(const Figures& total) {
  ReportUnits units;
  const double minutes = 60 * total.held_hours();
  if (minutes <= 0) return units;
  if (minutes < 120) {
    units.time = "minutes";
    units.time_per_hour = 60;
  }
  if (minutes < 2) {
    units.time = "seconds";
    units.time_per_hour = 3600;
  }
  if (total.cards.energy_kwh < 1) {
    units.energy = "Wh";
    units.energy_per_kwh = 1000;
  }
  return units;
}

std::string number_text(double value) {
  if (value > 0 && value < 0.05) return "<0.1";
  return value < 1000 ? fmt::format("{:.1f}", std::max(value, 0.0)) : fmt::format("{:.0f}", value);
}

std::string time_text(double hours, const ReportUnits& units) {
  return number_text(units.time_value(hours));
}

std::string percent_text(std::optional<double> percent) {
  if (!percent) return "-";
  if (*percent > 0 && *percent < 0.5) return "<1%";
  return fmt::format("{:.0f}%", std::clamp(*percent, 0.0, 100.0));
}

std::string utilization_text(const Figures& figures) {
  const bool partial = is_partial(figures.utilization_measured, figures.held_hours());
  return fmt::format("{}{}", partial ? "~" : "", percent_text(figures.utilization_pct()));
}

std::string idle_text(const Figures& figures) {
  const bool partial = is_partial(figures.idle_measured, figures.gpu_hours);
  return fmt::format("{}{}", partial ? "~" : "", percent_text(figures.idle_pct()));
}

std::string energy_text(const Figures& figures, const ReportUnits& units) {
  if (!figures.energy_kwh()) return "-";
  const bool partial = is_partial(figures.cards.measured_hours, figures.cards.hours);
  return fmt::format("{}{}", partial ? "~" : "",
                     number_text(units.energy_value(*figures.energy_kwh())));
}

std::string waited_text(const Figures& figures) {
  return figures.waits ? seconds_text(figures.waits->median_s) : "-";
}

std::string seconds_text(double seconds) {
  return format_whole_seconds(std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000)));
}

bool is_partly_measured(const ReportSection& section) {
  return std::any_of(section.rows.begin(), section.rows.end(), [](const ReportRow& row) {
    return is_partial(row.figures->utilization_measured, row.figures->held_hours()) ||
           is_partial(row.figures->idle_measured, row.figures->gpu_hours) ||
           is_partial(row.figures->cards.measured_hours, row.figures->cards.hours);
  });
}

std::vector<ReportFact> make_report_facts(const Report& report) {
  const Figures& total = report.total;
  const ReportUnits units = choose_units(total);
  std::vector<ReportFact> facts{leases_fact(report), time_fact(total, units)};
  if (total.shared_gpu_hours > 0) facts.push_back(shared_fact(total, units));
  facts.push_back(occupancy_fact(report, units));
  facts.push_back(utilization_fact(total));
  facts.push_back(energy_fact(total, units));
  if (total.waits) {
    facts.push_back(
        {"Waited", seconds_text(total.waits->median_s),
         fmt::format("median; 95% of the leases at most {}, the longest {}",
                     seconds_text(total.waits->p95_s), seconds_text(total.waits->longest_s))});
  }
  return facts;
}

}  // namespace berth
