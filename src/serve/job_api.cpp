// Lists, reads and ends detached jobs; see job_api.h.
#include "serve/job_api.h"

#include <algorithm>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "harbour/location.h"
#include "profile/job_type.h"
#include "run/cancel.h"
#include "run/job_json.h"
#include "run/job_output.h"
#include "run/job_sources.h"

namespace berth::serve {
namespace {

// How long an ended job is listed: after its end or, if it is unknown when it ended, after it was
// submitted.
constexpr std::chrono::hours kListedAfterEnd(24);
constexpr std::chrono::hours kListedAfterUnknownEnd(7 * 24);
constexpr std::size_t kMaxCommandSize = 512;  // as in the status
constexpr std::size_t kMaxListedLeases = 20;  // a batch has a lease for each line
constexpr std::size_t kMaxOutputSize = std::size_t{32} << 10;

bool has_ended_long_ago(const DetachedJob& job, TimePoint now) {
  return !job.is_alive && job.finish && job.finish->at + kListedAfterEnd < now;
}

std::string shorten_command(const std::vector<std::string>& words, bool hide) {
  if (words.empty()) return "";
  std::string command = public_command(words, hide);
  if (command.size() > kMaxCommandSize)
    command = std::string(truncate_utf8(command, kMaxCommandSize)).append("…");
  return command;
}

// What the other users of the host see of the job's command, also where the file of the job has
// more.
std::vector<DetachedJob> select_jobs(const std::vector<DetachedJob>& jobs, TimePoint now,
                                     bool hide_commands) {
  std::vector<DetachedJob> selected;
  for (const DetachedJob& job : jobs) {
    if (has_ended_long_ago(job, now)) continue;
    selected.push_back(job);
    selected.back().spec.command = {shorten_command(job.spec.command, hide_commands)};
  }
  return selected;
}

// The leases and tickets of the user.
Status select_own(const Status& host) {
  Status own;
  own.host = host.host;
  for (const Record& lease : host.leases) {
    if (lease.uid == ::geteuid()) own.leases.push_back(lease);
  }
  for (const TicketStatus& ticket : host.queue) {
    if (ticket.record.uid == ::geteuid()) own.queue.push_back(ticket);
  }
  return own;
}

JobSources make_sources(const JobFolders& folders, const std::vector<Status>& hosts, TimePoint now,
                        bool hide_commands) {
  static const HarbourLocation where = harbour_location();
  JobSources sources = make_job_sources(where);
  sources.detached = select_jobs(folders.jobs, now, hide_commands);
  sources.held_jobs = folders.held;
  sources.now = now;
  for (const Status& host : hosts) {
    Status own = select_own(host);
    if (host.is_remote) {
      sources.other_hosts.push_back(std::move(own));
    } else {
      sources.host = host.host;
      sources.leases = std::move(own.leases);
      sources.queue = std::move(own.queue);
    }
    add_gpu_indices(host, sources);
  }
  return sources;
}

bool is_old(const JobInfo& job, TimePoint now) {
  if (job.is_active()) return false;
  return job.ended ? *job.ended + kListedAfterEnd < now
                   : job.submitted + kListedAfterUnknownEnd < now;
}

// Active jobs first; of those that have ended, the latest first.
bool is_listed_before(const JobInfo& one, const JobInfo& other) {
  if (one.is_active() || other.is_active())
    return std::pair(!one.is_active(), one.submitted) <
           std::pair(!other.is_active(), other.submitted);
  return one.ended.value_or(one.submitted) > other.ended.value_or(other.submitted);
}

HttpResponse job_error_response(const Error& error, const std::string& id) {
  switch (error.kind) {
    case ErrorKind::usage:
      // The job has ended already, or there is no such job.
      return error_response(find_job(id) ? 409 : 404, error.message);
    case ErrorKind::permission:
      return error_response(403, error.message);
    default:
      return error_response(503, error.message);
  }
}

}  // namespace

std::string make_job_list(const JobFolders& folders, const std::vector<Status>& hosts,
                          TimePoint now, bool hide_commands) {
  std::vector<JobInfo> list = merge_jobs(make_sources(folders, hosts, now, hide_commands));
  std::erase_if(list, [&](const JobInfo& job) { return !job.is_detached || is_old(job, now); });
  std::stable_sort(list.begin(), list.end(), is_listed_before);
  const std::size_t total = list.size();
  if (total > kMaxListedJobs) list.erase(list.begin() + kMaxListedJobs, list.end());
  for (JobInfo& job : list) {
    const auto surplus = job.leases.size() - std::min(job.leases.size(), kMaxListedLeases);
    job.leases.erase(job.leases.begin(), job.leases.begin() + static_cast<std::ptrdiff_t>(surplus));
  }
  return partial_jobs_json(list, total);
}

HttpResponse end_job(const std::string& id) {
  CancelSelection selection;
  selection.ids = {id};
  const auto ended = cancel(selection, kDefaultGrace);
  if (!ended) return job_error_response(ended.error(), id);
  std::string message;
  for (const CancelledJob& job : *ended) {  // several: the lines of a batch that was killed
    const std::string text = describe_end(job, kDefaultGrace);
    if (!is_done(job)) return error_response(job.end == JobEndResult::refused ? 403 : 409, text);
    message += (message.empty() ? "" : "; ") + text;
  }
  return json_response(to_ascii_json(Json{{"done", true}, {"message", message}}) + "\n");
}

HttpResponse read_job_output(const std::string& id) {
  const auto job = find_job(id);
  if (!job) return job_error_response(job.error(), id);
  auto reader = OutputReader::open(job->output_path());
  if (!reader) return error_response(503, reader.error().message);
  // A byte more tells whether there is more.
  reader->seek_last_bytes(kMaxOutputSize + 1);
  std::string text;
  bool has_hole = false;
  // The job may write faster than this reads.
  while (text.size() < 2 * kMaxOutputSize) {
    const auto piece = reader->read_next();
    if (!piece) break;
    has_hole = has_hole || piece->missing > 0;
    text += piece->bytes;
  }
  const bool truncated = has_hole || text.size() > kMaxOutputSize;
  if (text.size() > kMaxOutputSize) text.erase(0, text.size() - kMaxOutputSize);
  // Not from the middle of a line, or of a character.
  if (const auto line_end = text.find('\n'); truncated && line_end + 1 < text.size())
    text.erase(0, line_end + 1);
  return json_response(
      to_ascii_json(Json{{"id", job->spec.id}, {"text", text}, {"truncated", truncated}}) + "\n");
}

}  // namespace berth::serve
