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

// The measured share of `all`, in `words`; empty if all was measured.
std::string format_measured_share(const char* words, double measured, double all) {
  if (all <= 0 || measured >= 0.995 * all) return "";
  return fmt::format(fmt::runtime(words), 100 * measured / all);
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

std::string leases_fact(const Report& report) {
  std::string text = fmt::format("{}", report.total.leases);
  if (report.total.running > 0) text += fmt::format(", {} running", report.total.running);
  if (report.total.lost > 0) text += fmt::format(", {} lost", report.total.lost);
  if (report.nested > 0) text += fmt::format("; {} inside other leases", report.nested);
  return text;
}

std::string hours_fact(const Figures& total) {
  std::string text = hours_text(total.gpu_hours);
  if (total.gpu_hours <= 0) return text;
  if (total.idle_measured <= 0) return text + "; idle time was not measured";
  return text +
         fmt::format(", idle {} ({}{})", hours_text(total.idle), percent_text(total.idle_pct()),
                     format_measured_share(" of the {:.0f}% of that time for which it was measured",
                                           total.idle_measured, total.gpu_hours));
}

std::string utilization_fact(const Figures& total) {
  if (total.utilization_measured <= 0) return "not measured";
  return fmt::format("{} while leased{}", percent_text(total.utilization_pct()),
                     format_measured_share("; {:.0f}% of that was measured",
                                           total.utilization_measured, total.held_hours()));
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

std::string hours_text(double hours) {
  return fmt::format("{:.1f}", std::max(hours, 0.0));
}

std::string percent_text(std::optional<double> percent) {
  return percent ? fmt::format("{:.0f}%", std::clamp(*percent, 0.0, 100.0)) : "-";
}

std::string utilization_text(const Figures& figures) {
  const bool partial = is_partial(figures.utilization_measured, figures.held_hours());
  return fmt::format("{}{}", partial ? "~" : "", percent_text(figures.utilization_pct()));
}

std::string idle_text(const Figures& figures) {
  const bool partial = is_partial(figures.idle_measured, figures.gpu_hours);
  return fmt::format("{}{}", partial ? "~" : "", percent_text(figures.idle_pct()));
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
           is_partial(row.figures->idle_measured, row.figures->gpu_hours);
  });
}

std::vector<ReportFact> make_report_facts(const Report& report) {
  const Figures& total = report.total;
  std::vector<ReportFact> facts{{"Leases", leases_fact(report)}, {"GPU-hours", hours_fact(total)}};
  if (total.shared_gpu_hours > 0) {
    facts.push_back({"Shared", fmt::format("{} GPU-hours, {} GiB-hours reserved",
                                           hours_text(total.shared_gpu_hours),
                                           hours_text(total.shared_gib_hours))});
  }
  facts.push_back({"Utilization", utilization_fact(total)});
  if (total.waits) {
    facts.push_back(
        {"Waited",
         fmt::format("median {}, 95% at most {}, longest {}", seconds_text(total.waits->median_s),
                     seconds_text(total.waits->p95_s), seconds_text(total.waits->longest_s))});
  }
  return facts;
}

}  // namespace berth
