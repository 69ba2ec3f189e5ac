// The JSON of `berth report`; see report_json.h.
#include "archive/report_json.h"

#include <algorithm>

#include "base/time_text.h"
#include "base/users.h"

namespace berth {
namespace {

// To the millionth of an hour or percent, so that nobody sees the ends of binary fractions.
double tidy(double value) {
  constexpr double kParts = 1e6;
  return static_cast<double>(rounded(std::max(value, 0.0) * kParts)) / kParts;
}

Json tidy_or_null(std::optional<double> value) {
  return value ? Json(tidy(*value)) : Json(nullptr);
}

double seconds(double value) {
  constexpr double kParts = 1e3;
  return static_cast<double>(rounded(value * kParts)) / kParts;
}

Json figures_json(const Figures& figures) {
  const auto waited = [&](double Waits::*which) {
    return figures.waits ? Json(seconds((*figures.waits).*which)) : Json(nullptr);
  };
  const bool knows_idle = figures.idle_measured > 0;
  return {{"leases", figures.leases},
          {"running", figures.running},
          {"lost", figures.lost},
          {"gpu_hours", tidy(figures.gpu_hours)},
          {"shared_gpu_hours", tidy(figures.shared_gpu_hours)},
          {"shared_gib_hours", tidy(figures.shared_gib_hours)},
          {"utilization_pct", tidy_or_null(figures.utilization_pct())},
          {"utilization_measured_gpu_hours", tidy(figures.utilization_measured)},
          {"idle_gpu_hours", knows_idle ? Json(tidy(figures.idle)) : Json(nullptr)},
          {"idle_measured_gpu_hours", tidy(figures.idle_measured)},
          {"waited_s_median", waited(&Waits::median_s)},
          {"waited_s_p95", waited(&Waits::p95_s)},
          {"waited_s_longest", waited(&Waits::longest_s)}};
}

Json gpu_json(const KnownGpu& gpu) {
  return {{"uuid", gpu.uuid},
          {"host", gpu.host.empty() ? Json(nullptr) : Json(gpu.host)},
          {"index", gpu.index.empty() ? Json(nullptr) : Json(gpu.index)},
          {"name", gpu.name.empty() ? Json(nullptr) : Json(gpu.name)}};
}

template <class Of, class Name>
Json parts_json(const std::vector<Part<Of>>& parts, const Name& name) {
  Json list = Json::array();
  for (const Part<Of>& part : parts) {
    Json one = name(part.of);
    one.update(figures_json(part.figures));
    list.push_back(std::move(one));
  }
  return list;
}

Json idle_json(const std::vector<IdleLease>& leases, const CommandVisibility& commands_of) {
  Json list = Json::array();
  for (const IdleLease& lease : leases) {
    Json gpus = Json::array();
    for (const KnownGpu& gpu : lease.gpus) gpus.push_back(gpu_json(gpu));
    const std::string& user = user_name(lease.owner.uid, lease.owner.user);
    list.push_back({{"user", user},
                    {"job", lease.job},
                    {"command", command_or_null(lease.about.command, user, commands_of)},
                    {"label", lease.about.label},
                    {"gpus", std::move(gpus)},
                    {"exclusive", lease.exclusive},
                    {"granted", iso_time(lease.granted)},
                    {"lasted_s", static_cast<double>(lease.lasted.count()) / 1000},
                    {"idle_s", static_cast<double>(lease.idle.count()) / 1000}});
  }
  return list;
}

}  // namespace

std::string report_json(const Report& report, ReportBy by, const std::string& host,
                        std::size_t damaged_lines, const CommandVisibility& commands_of) {
  const auto wanted = [&](ReportBy which) { return by == ReportBy::all || by == which; };
  Json total = figures_json(report.total);
  total["nested_leases"] = report.nested;
  Json json{{"host", host.empty() ? Json(nullptr) : Json(host)},
            {"since", iso_time(report.since)},
            {"until", iso_time(report.until)},
            {"damaged_lines", damaged_lines},
            {"total", std::move(total)}};
  if (wanted(ReportBy::user)) {
    json["users"] = parts_json(report.users, [](const LeaseOwner& user) {
      return Json{{"user", user_name(user.uid, user.user)}};
    });
  }
  if (wanted(ReportBy::job)) {
    json["jobs"] = parts_json(report.jobs, [](const std::string& job) {
      return Json{{"job", job}};
    });
  }
  if (wanted(ReportBy::gpu)) json["gpus"] = parts_json(report.gpus, gpu_json);
  if (wanted(ReportBy::day)) {
    json["days"] = parts_json(report.days, [](TimePoint day) {
      return Json{{"day", local_day(day)}};
    });
  }
  if (by == ReportBy::all) json["idle_leases"] = idle_json(report.idle, commands_of);
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace berth
