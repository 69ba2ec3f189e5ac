// Writes jobs as JSON; see job_json.h.
#include "run/job_json.h"

#include "base/json.h"
#include "base/text.h"
#include "base/time_text.h"

namespace berth {
namespace {

Json time_or_null(const std::optional<TimePoint>& time) {
  return time ? Json(format_iso_time(*time)) : Json(nullptr);
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

// As in `berth status --json`: a number for a card, a text for a MIG instance.
Json gpus_json(const std::vector<std::string>& gpus) {
  Json list = Json::array();
  for (const std::string& gpu : gpus) {
    const auto card = parse_integer<unsigned>(gpu);
    list.push_back(card ? Json(*card) : Json(gpu));
  }
  return list;
}

const char* result_name(const JobInfo& job) {
  if (job.is_active()) return nullptr;
  if (job.is_released) return "released";
  if (!job.exit_code) return "unknown";
  return *job.exit_code == 0 ? "succeeded" : "failed";
}

Json batch_json(const std::optional<BatchCounts>& batch) {
  if (!batch) return nullptr;
  return {{"total", batch->total},
          {"succeeded", batch->succeeded},
          {"failed", batch->failed},
          {"running", batch->running}};
}

Json job_json(const JobInfo& job) {
  const char* const result = result_name(job);
  const auto& end = job.expected_end;
  return {{"id", job.id},
          {"user", job.user},
          {"host", text_or_null(job.host)},
          {"queue_hosts", job.queue_hosts},
          {"kind", origin_name(job.origin)},
          {"detached", job.is_detached},
          {"state", state_name(job.state)},
          {"reason", text_or_null(job.reason)},
          {"position", or_null(job.position)},
          {"command", job.command},
          {"label", job.label},
          {"gpus", gpus_json(job.gpus)},
          {"leases", job.leases},
          {"submitted", format_iso_time(job.submitted)},
          {"started", time_or_null(job.started)},
          {"ended", time_or_null(job.ended)},
          {"starts", time_or_null(job.expected_start)},
          {"ends", end ? Json(format_iso_time(end->at)) : Json(nullptr)},
          {"ends_source", end ? Json(to_string(end->source)) : Json(nullptr)},
          {"result", result == nullptr ? Json(nullptr) : Json(result)},
          {"exit_code", or_null(job.exit_code)},
          {"batch", batch_json(job.batch)},
          {"output", text_or_null(job.output)}};
}

Json list_json(const std::vector<JobInfo>& jobs) {
  Json list = Json::array();
  for (const JobInfo& job : jobs) list.push_back(job_json(job));
  return list;
}

}  // namespace

std::string jobs_json(const std::vector<JobInfo>& jobs) {
  return to_ascii_json({{"jobs", list_json(jobs)}}, 2) + "\n";
}

std::string partial_jobs_json(const std::vector<JobInfo>& jobs, std::size_t total) {
  return to_ascii_json({{"jobs", list_json(jobs)}, {"jobs_length", total}});
}

}  // namespace berth
