// The JSON of `berth log`; see log_json.h.
#include "archive/log_json.h"

#include "base/users.h"

namespace berth {
namespace {

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(std::chrono::floor<std::chrono::milliseconds>(time)).count();
}

}  // namespace

std::string log_json(const HistoryEntry& entry, const std::string& this_host,
                     const CommandVisibility& command_visibility) {
  Json gpus = Json::array();
  for (const HistoryGpu& gpu : entry.gpus) {
    gpus.push_back(
        {{"uuid", gpu.uuid},
         {"index", gpu.index.empty() ? Json(nullptr) : Json(gpu.index)},
         {"name", gpu.name.empty() ? Json(nullptr) : Json(gpu.name)},
         {"peak_mib", mib_or_null(gpu.peak)},
         {"utilization_pct", gpu.utilization_pct ? Json(*gpu.utilization_pct) : Json(nullptr)}});
  }
  const bool ended = entry.ending != Ending::running;
  const bool end_known = entry.ending != Ending::lost;  // nobody knows when that was
  const std::string& user = user_name(entry.uid, entry.user);
  const Json line{
      {"lease", entry.id},
      {"host", entry.host.empty() ? this_host : entry.host},
      {"user", user},
      {"command", command_or_null(entry.command, user, command_visibility)},
      {"label", entry.label},
      {"job", entry.job.empty() ? Json(nullptr) : Json(entry.job)},
      {"within", entry.parent_lease.empty() ? Json(nullptr) : Json(entry.parent_lease)},
      {"gpus", std::move(gpus)},
      {"exclusive", !entry.memory},
      {"memory_mib", mib_or_null(entry.memory)},
      {"asked", format_iso_time(entry.asked)},
      {"granted", format_iso_time(entry.granted)},
      {"ended", ended ? Json(format_iso_time(entry.ended)) : Json(nullptr)},
      {"ending", ending_name(entry.ending)},
      {"exit_code", entry.ending == Ending::exited ? Json(entry.code) : Json(nullptr)},
      {"signal", entry.ending == Ending::killed ? Json(entry.code) : Json(nullptr)},
      {"waited_s", seconds(entry.granted - entry.asked)},
      {"lasted_s", end_known ? Json(seconds(entry.ended - entry.granted)) : Json(nullptr)},
      {"idle_s", entry.idle ? Json(seconds(*entry.idle)) : Json(nullptr)}};
  return line.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace berth
