// Reads folders, tickets, leases and history for the list of jobs; see job_sources.h.
#include "run/job_sources.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <set>
#include <unistd.h>
#include <utility>

#include "base/process.h"
#include "base/terminal.h"
#include "base/text.h"
#include "base/users.h"
#include "devices/driver.h"
#include "harbour/harbour.h"
#include "lease/lease_history.h"
#include "run/job_wait.h"
#include "run/other_hosts.h"

namespace berth {
namespace {

constexpr std::chrono::hours kDefaultHistory(24);

Result<Status> observe_this_host() {
  const auto probe = TRY(open_driver(print_driver_is_slow));
  return observe_host(*probe, is_driver_simulated());
}

bool is_wanted(const Record& record, const JobListOptions& options, const JobSources& sources) {
  return options.all_users || record.uid == sources.viewer;
}

// The tickets and leases of the harbour, with the reasons for waiting if the driver answers.
Result<void> read_clients(const JobListOptions& options, JobSources& sources) {
  std::optional<Harbour> harbour = TRY(Harbour::open_existing());
  if (!harbour) return {};
  HarbourContents contents = TRY(read_contents(*harbour));
  const auto is_listed = [&](const Record& record) { return is_wanted(record, options, sources); };
  const bool has_clients =
      std::any_of(contents.tickets.begin(), contents.tickets.end(), is_listed) ||
      std::any_of(contents.leases.begin(), contents.leases.end(), is_listed);
  if (!has_clients) return {};
  auto status = options.asks_driver ? observe_this_host() : tl::make_unexpected(Error{});
  if (status) {
    sources.leases = std::move(status->leases);
    sources.queue = std::move(status->queue);
    add_gpu_indices(*status, sources);
  } else {
    sources.leases = std::move(contents.leases);
    for (std::size_t i = 0; i < contents.tickets.size(); ++i)
      sources.queue.push_back({std::move(contents.tickets[i]), i + 1, "", std::nullopt});
  }
  std::erase_if(sources.leases, [&](const Record& lease) { return !is_listed(lease); });
  std::erase_if(sources.queue, [&](const TicketStatus& one) { return !is_listed(one.record); });
  return {};
}

Result<void> read_other_clients(const HarbourLocation& where, const JobListOptions& options,
                                JobSources& sources) {
  sources.other_hosts = TRY(read_other_hosts(where));
  for (Status& other : sources.other_hosts) {
    std::erase_if(other.leases,
                  [&](const Record& lease) { return !is_wanted(lease, options, sources); });
    std::erase_if(other.queue, [&](const TicketStatus& one) {
      return !is_wanted(one.record, options, sources);
    });
    add_gpu_indices(other, sources);
  }
  return {};
}

bool has_id(const JobInfo& job, const std::string& id) {
  return job.id == id || std::find(job.leases.begin(), job.leases.end(), id) != job.leases.end();
}

Result<void> select_ids(const std::vector<std::string>& ids, std::vector<JobInfo>& jobs) {
  for (const std::string& id : ids) {
    const bool found =
        std::any_of(jobs.begin(), jobs.end(), [&](const JobInfo& job) { return has_id(job, id); });
    if (found) continue;
    return fail(ErrorKind::usage,
                fmt::format("there is no job {}; 'berth jobs' lists them", in_quotes(id)));
  }
  std::erase_if(jobs, [&](const JobInfo& job) {
    return std::none_of(ids.begin(), ids.end(),
                        [&](const std::string& id) { return has_id(job, id); });
  });
  return {};
}

}  // namespace

JobSources make_job_sources(const HarbourLocation& where) {
  JobSources sources;
  sources.host = local_host_name(where);
  sources.harbour = where.path;
  sources.viewer = ::geteuid();
  sources.pid_namespace = pid_namespace();
  sources.parent_of = [](pid_t pid) {
    const auto stat = read_process_stat(pid);
    return stat ? stat->parent : 0;
  };
  return sources;
}

void add_gpu_indices(const Status& host, JobSources& sources) {
  for (const GpuStatus& gpu : host.gpus) {
    if (gpu.view.gpu.uuid)
      sources.gpu_indices.emplace(*gpu.view.gpu.uuid, to_string(gpu.view.gpu.index));
  }
}

std::set<std::string> find_held_jobs(const std::vector<DetachedJob>& jobs) {
  std::set<std::string> held;
  for (const DetachedJob& job : jobs) {
    if (!job.is_alive && !job.finish && open_held_bell(job).counts_as_alive())
      held.insert(job.spec.id);
  }
  return held;
}

Result<std::vector<JobInfo>> list_all_jobs(const JobListOptions& options) {
  const HarbourLocation where = harbour_location();
  JobSources sources = make_job_sources(where);
  // Before the harbour: a job that starts meanwhile is then listed by its ticket or lease at least.
  if (auto detached = list_jobs()) sources.detached = std::move(*detached);
  TRY(read_clients(options, sources));
  TRY(read_other_clients(where, options, sources));
  sources.held_jobs = find_held_jobs(sources.detached);
  sources.now = std::chrono::system_clock::now();
  const TimePoint recent = options.ids.empty() ? sources.now - kDefaultHistory : TimePoint{};
  const LeaseFilter own{sources.viewer, user_name(sources.viewer), ""};
  History history =
      TRY(read_merged_history(where, options.since.value_or(recent), [&](const HistoryEntry& one) {
        return options.all_users || own.matches(one.uid, one.user, one.host);
      }));
  sources.history = std::move(history.entries);
  std::vector<JobInfo> jobs = merge_jobs(sources);
  if (!options.ids.empty()) {
    TRY(select_ids(options.ids, jobs));
  } else if (options.since) {
    std::erase_if(jobs, [&](const JobInfo& job) {
      return !job.is_active() && job.ended.value_or(job.submitted) < *options.since;
    });
  }
  return jobs;
}

}  // namespace berth
