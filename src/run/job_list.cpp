// Merges folders, tickets, leases and history into one list of jobs; see job_list.h.
#include "run/job_list.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>
#include <unistd.h>
#include <utility>

#include "base/configuration.h"
#include "base/process.h"
#include "base/terminal.h"
#include "base/text.h"
#include "base/users.h"
#include "devices/driver.h"
#include "harbour/harbour.h"
#include "lease/lease_history.h"

namespace berth {
namespace {

constexpr std::chrono::hours kDefaultHistory(24);
constexpr const char* kExitCodeWillBeLost =
    "its berth process was killed, and processes of the job still run: its exit code will be "
    "unknown";
constexpr const char* kExitCodeLost = "its berth process was killed, or the host was restarted";

std::vector<std::string> split_indices(std::string_view indices) {
  std::vector<std::string> list;
  while (!indices.empty()) {
    const std::string_view one = indices.substr(0, indices.find(','));
    indices.remove_prefix(std::min(indices.size(), one.size() + 1));
    list.emplace_back(one);
  }
  return list;
}

class JobMerger {
 public:
  explicit JobMerger(const JobSources& sources) : sources_(sources) {}

  std::vector<JobInfo> merge() {
    for (const DetachedJob& job : sources_.detached) add_detached(job);
    for (const Record& lease : sources_.leases) {
      if (!used_.contains(key(lease))) add_lease(lease);
    }
    for (const TicketStatus& ticket : sources_.queue) {
      if (!used_.contains(key(ticket.record))) add_ticket(ticket);
    }
    for (const HistoryEntry& entry : sources_.history) add_entry(entry);
    std::stable_sort(jobs_.begin(), jobs_.end(), [](const JobInfo& one, const JobInfo& other) {
      return one.submitted < other.submitted;
    });
    return std::move(jobs_);
  }

 private:
  // An id alone is not unique: another user may write a record or a history with any id.
  using Key = std::pair<uid_t, std::string>;
  static Key key(const Record& record) { return {record.uid, record.id}; }

  bool is_own(const Record& record) const { return record.uid == sources_.viewer; }
  bool is_own(const HistoryEntry& entry) const {
    return LeaseFilter{sources_.viewer, user_name(sources_.viewer), ""}.matches(
        entry.uid, entry.user, entry.host);
  }

  // The ticket or lease is one of the detached job: by its id, or by the process that wrote it.
  bool belongs_to(const Record& record, const DetachedJob& job) const {
    if (!is_own(record)) return false;
    const auto& grants = job.grants;
    const bool is_named = record.id == job.spec.id ||
                          std::any_of(grants.begin(), grants.end(), [&](const JobGrant& grant) {
                            return grant.lease == record.id;
                          });
    if (is_named) return true;
    const auto& process = job.process;
    if (!job.is_alive || !process || record.pid <= 0 ||
        process->pid_namespace != record.pid_namespace ||
        process->pid_namespace != sources_.pid_namespace)
      return false;
    if (record.pid == process->pid) return true;
    return job.spec.kind == JobKind::batch && sources_.parent_of(record.pid) == process->pid;
  }

  void add_gpus(const Record& lease, JobInfo& info) const {
    for (const std::string& uuid : lease.uuids) {
      const auto known = sources_.gpu_indices.find(uuid);
      add_unique(info.gpus, known == sources_.gpu_indices.end() ? uuid : known->second);
    }
  }

  static void add_unique(std::vector<std::string>& list, const std::string& text) {
    if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
  }

  void set_waiting(const TicketStatus& ticket, JobInfo& info) const {
    info.state = JobState::waiting;
    info.reason = ticket.reason;
    info.position = ticket.position;
    info.expected_start = ticket.starts;
  }

  void add_detached(const DetachedJob& job) {
    JobInfo info;
    info.id = job.spec.id;
    info.user = user_name(sources_.viewer);
    info.host = job.spec.host;
    info.is_own = info.is_detached = true;
    info.origin = job.spec.kind == JobKind::batch ? JobOrigin::batch : JobOrigin::run;
    info.command = join_text(job.spec.command, " ");
    info.label = job.spec.label;
    info.submitted = job.spec.submitted;
    info.batch = job.batch;
    info.output = job.output_path();
    for (const JobGrant& grant : job.grants) info.leases.push_back(grant.lease);
    if (job.spec.kind == JobKind::batch) {
      if (!job.grants.empty()) info.started = job.grants.front().at;
    } else if (!job.grants.empty()) {
      info.started = job.grants.back().at;
      info.gpus = split_indices(job.grants.back().gpus);
    }
    set_state(job, info);
    used_.insert({sources_.viewer, job.spec.id});
    for (const std::string& lease : info.leases) used_.insert({sources_.viewer, lease});
    jobs_.push_back(std::move(info));
  }

  void set_state(const DetachedJob& job, JobInfo& info) {
    std::vector<const Record*> leases;
    for (const Record& lease : sources_.leases) {
      if (!belongs_to(lease, job)) continue;
      leases.push_back(&lease);
      used_.insert(key(lease));
    }
    const TicketStatus* ticket = nullptr;
    for (const TicketStatus& one : sources_.queue) {
      if (!belongs_to(one.record, job)) continue;
      if (ticket == nullptr) ticket = &one;
      used_.insert(key(one.record));
    }
    if (job.finish) {
      info.state = JobState::ended;
      info.ended = job.finish->at;
      info.exit_code = job.finish->code;
      info.reason = job.finish->message;
      if (info.reason.empty() && !leases.empty())
        info.reason = "processes that it left behind still hold its lease";
      return;
    }
    if (!leases.empty()) {
      set_running(leases, info);
      if (!job.is_alive) info.reason = kExitCodeWillBeLost;
    } else if (!job.is_alive) {
      info.state = JobState::ended;
      info.reason = kExitCodeLost;
    } else if (ticket != nullptr) {
      set_waiting(*ticket, info);
      if (job.spec.kind == JobKind::batch) return;
      info.gpus.clear();  // those of the attempt before this one
      info.started.reset();
    } else if (!job.held.empty()) {
      info.state = JobState::held;
      info.reason = job.held;
    } else if (job.grants.empty() && job.spec.kind == JobKind::run) {
      info.state = JobState::waiting;
      info.reason = "it has not joined the queue yet";
    } else {
      info.state = JobState::running;
    }
  }

  void set_running(const std::vector<const Record*>& leases, JobInfo& info) const {
    info.state = JobState::running;
    info.gpus.clear();
    const bool is_batch = info.origin == JobOrigin::batch;
    if (!is_batch || !info.started) info.started = leases.front()->granted;
    for (const Record* lease : leases) {
      add_unique(info.leases, lease->id);
      add_gpus(*lease, info);
    }
    if (!is_batch) info.expected_end = find_last_end(leases, sources_.now);
  }

  JobInfo describe(const Record& record) const {
    JobInfo info;
    info.id = record.id;
    info.user = user_name(record.uid);
    info.host = sources_.host;
    info.is_own = is_own(record);
    info.origin = record.holder == HolderKind::shell ? JobOrigin::shell : JobOrigin::run;
    info.command = record.command;
    info.label = record.label;
    info.submitted = record.since;
    if (!record.is_readable()) info.reason = record.problem;
    return info;
  }

  void add_lease(const Record& lease) {
    JobInfo info = describe(lease);
    const std::string problem = info.reason;
    set_running({&lease}, info);
    used_.insert(key(lease));
    jobs_.push_back(std::move(info));
  }

  void add_ticket(const TicketStatus& ticket) {
    JobInfo info = describe(ticket.record);
    set_waiting(ticket, info);
    used_.insert(key(ticket.record));
    jobs_.push_back(std::move(info));
  }

  void add_entry(const HistoryEntry& entry) {
    const bool own = is_own(entry);
    const bool is_local = entry.host.empty() || entry.host == sources_.host;
    if (is_local && used_.contains({own ? sources_.viewer : entry.uid, entry.id})) return;
    JobInfo info;
    info.id = entry.id;
    info.user = user_name(entry.uid, entry.user);
    info.host = entry.host.empty() ? sources_.host : entry.host;
    info.is_own = own;
    info.command = entry.command;
    info.label = entry.label;
    info.leases = {entry.id};
    for (const HistoryGpu& gpu : entry.gpus)
      info.gpus.push_back(gpu.index.empty() ? gpu.uuid : gpu.index);
    info.submitted = entry.asked;
    info.started = entry.granted;
    if (entry.ending == Ending::running) {
      info.state = JobState::running;
    } else if (entry.ending == Ending::lost) {
      info.reason = kExitCodeLost;
    } else {
      info.ended = entry.ended;
      info.is_released = entry.ending == Ending::released;
      if (info.is_released) info.origin = JobOrigin::shell;
      if (entry.ending == Ending::exited) info.exit_code = entry.code;
      if (entry.ending == Ending::killed) info.exit_code = 128 + entry.code;
    }
    jobs_.push_back(std::move(info));
  }

  const JobSources& sources_;
  std::set<Key> used_;
  std::vector<JobInfo> jobs_;
};

Result<Status> observe_this_host() {
  const auto probe = TRY(open_driver(print_driver_is_slow));
  return observe_host(*probe, is_driver_simulated());
}

// The tickets and leases of the harbour, with the reasons for waiting if the driver answers.
Result<void> read_clients(const JobListOptions& options, JobSources& sources) {
  std::optional<Harbour> harbour = TRY(Harbour::open_existing());
  if (!harbour) return {};
  HarbourContents contents = TRY(read_contents(*harbour));
  const auto is_wanted = [&](const Record& record) {
    return options.all_users || record.uid == sources.viewer;
  };
  const bool has_clients =
      std::any_of(contents.tickets.begin(), contents.tickets.end(), is_wanted) ||
      std::any_of(contents.leases.begin(), contents.leases.end(), is_wanted);
  if (!has_clients) return {};
  auto status = options.asks_driver ? observe_this_host() : tl::make_unexpected(Error{});
  if (status) {
    sources.leases = std::move(status->leases);
    sources.queue = std::move(status->queue);
    for (const GpuStatus& gpu : status->gpus) {
      if (gpu.view.gpu.uuid)
        sources.gpu_indices[*gpu.view.gpu.uuid] = to_string(gpu.view.gpu.index);
    }
  } else {
    sources.leases = std::move(contents.leases);
    for (std::size_t i = 0; i < contents.tickets.size(); ++i)
      sources.queue.push_back({std::move(contents.tickets[i]), i + 1, "", std::nullopt});
  }
  std::erase_if(sources.leases, [&](const Record& lease) { return !is_wanted(lease); });
  std::erase_if(sources.queue, [&](const TicketStatus& one) { return !is_wanted(one.record); });
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

const char* state_name(JobState state) {
  switch (state) {
    case JobState::held:
      return "held";
    case JobState::waiting:
      return "waiting";
    case JobState::running:
      return "running";
    case JobState::ended:
      return "ended";
  }
  return "";
}

const char* origin_name(JobOrigin origin) {
  switch (origin) {
    case JobOrigin::run:
      return "run";
    case JobOrigin::batch:
      return "batch";
    case JobOrigin::shell:
      return "shell";
  }
  return "";
}

std::optional<TimePoint> JobInfo::state_since() const {
  switch (state) {
    case JobState::held:
    case JobState::waiting:
      return submitted;
    case JobState::running:
      return started ? *started : submitted;
    case JobState::ended:
      return ended;
  }
  return std::nullopt;
}

std::vector<JobInfo> merge_jobs(const JobSources& sources) {
  return JobMerger(sources).merge();
}

Result<std::vector<JobInfo>> list_all_jobs(const JobListOptions& options) {
  const HarbourLocation where = harbour_location();
  JobSources sources;
  sources.host = local_host_name(where);
  sources.viewer = ::geteuid();
  sources.pid_namespace = pid_namespace();
  sources.parent_of = [](pid_t pid) {
    const auto stat = read_process_stat(pid);
    return stat ? stat->parent : 0;
  };
  // Before the harbour: a job that starts meanwhile is then listed by its ticket or lease at least.
  if (auto detached = list_jobs()) sources.detached = std::move(*detached);
  TRY(read_clients(options, sources));
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

void remove_expired_jobs() {
  const auto settings = read_configuration();
  if (settings) remove_old_jobs(std::chrono::ceil<std::chrono::seconds>(settings->job_keep));
}

}  // namespace berth
