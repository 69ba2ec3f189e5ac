// Builds the JSON documents of the history; see history_json.h.
#include "archive/history_json.h"

#include <algorithm>

#include "base/time_text.h"
#include "base/users.h"

namespace berth {
namespace {

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(std::chrono::floor<std::chrono::milliseconds>(time)).count();
}

// Rounds to a millionth of an hour or percent: 0.1 instead of 0.10000000000000001.
double round_figure(double value) {
  constexpr double kScale = 1e6;
  return static_cast<double>(round_positive(std::max(value, 0.0) * kScale)) / kScale;
}

Json round_or_null(std::optional<double> value) {
  return value ? Json(round_figure(*value)) : Json(nullptr);
}

double round_seconds(double value) {
  constexpr double kScale = 1e3;
  return static_cast<double>(round_positive(value * kScale)) / kScale;
}

Json figures_json(const Figures& figures) {
  const auto wait_json = [&](double WaitTimes::*which) {
    return figures.waits ? Json(round_seconds((*figures.waits).*which)) : Json(nullptr);
  };
  const bool has_idle = figures.idle_measured > 0;
  return {{"leases", figures.leases},
          {"running", figures.running},
          {"lost", figures.lost},
          {"gpu_hours", round_figure(figures.gpu_hours)},
          {"shared_gpu_hours", round_figure(figures.shared_gpu_hours)},
          {"shared_gib_hours", round_figure(figures.shared_gib_hours)},
          {"occupancy_pct", round_or_null(figures.occupancy_pct())},
          {"occupied_gpu_hours", round_figure(figures.occupied_hours)},
          {"utilization_pct", round_or_null(figures.utilization_pct())},
          {"utilization_measured_gpu_hours", round_figure(figures.utilization_measured)},
          {"idle_gpu_hours", has_idle ? Json(round_figure(figures.idle)) : Json(nullptr)},
          {"idle_measured_gpu_hours", round_figure(figures.idle_measured)},
          {"energy_kwh", round_or_null(figures.energy_kwh())},
          {"energy_measured_gpu_hours", round_figure(figures.cards.measured_hours)},
          {"waited_s_median", wait_json(&WaitTimes::median_s)},
          {"waited_s_p95", wait_json(&WaitTimes::p95_s)},
          {"waited_s_longest", wait_json(&WaitTimes::longest_s)}};
}

Json gpu_json(const GpuIdentity& gpu) {
  return {{"uuid", gpu.uuid},
          {"host", gpu.host.empty() ? Json(nullptr) : Json(gpu.host)},
          {"index", gpu.index.empty() ? Json(nullptr) : Json(gpu.index)},
          {"name", gpu.name.empty() ? Json(nullptr) : Json(gpu.name)}};
}

template <class Key, class Name>
Json groups_json(const std::vector<ReportGroup<Key>>& groups, const Name& name) {
  Json list = Json::array();
  for (const ReportGroup<Key>& group : groups) {
    Json one = name(group.key);
    one.append_members(figures_json(group.figures));
    list.push_back(std::move(one));
  }
  return list;
}

Json idle_json(const std::vector<IdleLease>& leases, const CommandVisibility& command_visibility) {
  Json list = Json::array();
  for (const IdleLease& lease : leases) {
    Json gpus = Json::array();
    for (const GpuIdentity& gpu : lease.gpus) gpus.push_back(gpu_json(gpu));
    const std::string& user = user_name(lease.owner.uid, lease.owner.user);
    list.push_back({{"user", user},
                    {"job", job_or_null(lease.job, user, command_visibility)},
                    {"command", command_or_null(lease.text.command, user, command_visibility)},
                    {"label", lease.text.label},
                    {"gpus", std::move(gpus)},
                    {"exclusive", lease.exclusive},
                    {"granted", format_iso_time(lease.granted)},
                    {"lasted_s", static_cast<double>(lease.lasted.count()) / 1000},
                    {"idle_s", static_cast<double>(lease.idle.count()) / 1000}});
  }
  return list;
}

}  // namespace

std::string log_json(const HistoryEntry& entry, const std::string& this_host,
                     const CommandVisibility& command_visibility) {
  Json gpus = Json::array();
  for (const HistoryGpu& gpu : entry.gpus) {
    gpus.push_back({{"uuid", gpu.uuid},
                    {"index", gpu.index.empty() ? Json(nullptr) : Json(gpu.index)},
                    {"name", gpu.name.empty() ? Json(nullptr) : Json(gpu.name)},
                    {"peak_mib", mib_or_null(gpu.peak)},
                    {"utilization_pct", or_null(gpu.utilization_pct)}});
  }
  const bool ended = entry.ending != Ending::running;
  const bool end_known = entry.ending != Ending::lost;  // the time of the end is unknown then
  const std::string& user = user_name(entry.uid, entry.user);
  const Json line{
      {"lease", entry.id},
      {"host", entry.host.empty() ? this_host : entry.host},
      {"user", user},
      {"command", command_or_null(entry.command, user, command_visibility)},
      {"label", entry.label},
      {"job", job_or_null(entry.job, user, command_visibility)},
      {"within", entry.parent_lease.empty() ? Json(nullptr) : Json(entry.parent_lease)},
      {"gpus", std::move(gpus)},
      {"exclusive", !entry.memory},
      {"memory_mib", mib_or_null(entry.memory)},
      {"asked", format_iso_time(entry.asked)},
      {"granted", format_iso_time(entry.granted)},
      {"ended", ended ? Json(format_iso_time(entry.ended)) : Json(nullptr)},
      {"ending", ending_name(entry.ending)},
      {"adopted", entry.adopted},
      {"exit_code", entry.ending == Ending::exited ? Json(entry.code) : Json(nullptr)},
      {"signal", entry.ending == Ending::killed ? Json(entry.code) : Json(nullptr)},
      {"waited_s", seconds(entry.granted - entry.asked)},
      {"lasted_s", end_known ? Json(seconds(entry.ended - entry.granted)) : Json(nullptr)},
      {"idle_s", entry.idle ? Json(seconds(*entry.idle)) : Json(nullptr)}};
  return to_ascii_json(line) + "\n";
}

std::string report_json(const Report& report, ReportBy by, const std::string& host,
                        std::size_t damaged_lines, const CommandVisibility& command_visibility) {
  const auto includes = [&](ReportBy which) { return by == ReportBy::all || by == which; };
  Json total = figures_json(report.total);
  total["nested_leases"] = report.nested;
  const bool has_capacity = report.total.capacity_hours > 0;
  Json json{{"host", host.empty() ? Json(nullptr) : Json(host)},
            {"since", format_iso_time(report.since)},
            {"until", format_iso_time(report.until)},
            {"damaged_lines", damaged_lines},
            {"recorded_since",
             has_capacity ? Json(format_iso_time(report.recorded_since)) : Json(nullptr)},
            {"gpu_count", has_capacity ? Json(report.gpu_count) : Json(nullptr)},
            {"capacity_gpu_hours",
             has_capacity ? Json(round_figure(report.total.capacity_hours)) : Json(nullptr)},
            {"total", std::move(total)}};
  if (includes(ReportBy::user)) {
    json["users"] = groups_json(report.users, [](const LeaseOwner& user) {
      return Json{{"user", user_name(user.uid, user.user)}};
    });
  }
  if (includes(ReportBy::job)) {
    json["jobs"] = groups_json(report.jobs, [&](const std::string& job) {
      return Json{{"job", command_visibility ? hide_command_in_job(job) : job}};
    });
  }
  if (includes(ReportBy::gpu)) json["gpus"] = groups_json(report.gpus, gpu_json);
  if (includes(ReportBy::day)) {
    json["days"] = groups_json(report.days, [](TimePoint day) {
      return Json{{"day", format_local_date(day)}};
    });
  }
  if (by == ReportBy::all) json["idle_leases"] = idle_json(report.idle, command_visibility);
  return to_ascii_json(json, 2) + "\n";
}

std::string timeline_json(const Timeline& timeline) {
  Json gpus = Json::array();
  for (const TimelineGpu& row : timeline.gpus) {
    Json spans = Json::array();
    for (const TimelineSpan& span : row.spans) {
      spans.push_back({{"user", user_name(span.owner.uid, span.owner.user)},
                       {"start", format_iso_time(span.start)},
                       {"end", format_iso_time(span.end)},
                       {"leases", span.leases},
                       {"shared", span.shared}});
    }
    gpus.push_back({{"host", row.gpu.host},
                    {"uuid", row.gpu.uuid},
                    {"index", row.gpu.index.empty() ? Json(nullptr) : Json(row.gpu.index)},
                    {"name", row.gpu.name.empty() ? Json(nullptr) : Json(row.gpu.name)},
                    {"spans", std::move(spans)}});
  }
  const Json json{{"since", format_iso_time(timeline.since)},
                  {"until", format_iso_time(timeline.until)},
                  {"resolution_s", timeline.resolution.count()},
                  {"truncated", timeline.truncated},
                  {"gpus", std::move(gpus)}};
  return to_ascii_json(json) + "\n";
}

}  // namespace berth
