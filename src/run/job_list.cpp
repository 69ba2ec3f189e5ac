// Merges folders, tickets, leases and history into one list of jobs; see job_list.h.
#include "run/job_list.h"

#include <algorithm>
#include <fmt/format.h>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "base/users.h"
#include "harbour/record.h"
#include "lease/lease_history.h"
#include "status/lease_end.h"

namespace berth {
namespace {

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
    collect_clients();
    for (const DetachedJob& job : sources_.detached) add_detached(job);
    for (const LeasePlace& lease : leases_) {
      if (!is_used(lease)) add_lease(lease);
    }
    for (const TicketPlaces& ticket : tickets_) {
      if (!used_.contains(key(*ticket.record))) add_ticket(ticket);
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

  struct LeasePlace {
    const Record* record;
    const std::string* host;
    bool is_remote;
  };
  // A ticket may be in the queues of several hosts.
  struct TicketPlaces {
    const Record* record;
    bool is_remote;
    std::vector<std::string> hosts{};
    std::vector<std::string> reasons{};
    std::size_t position = 0;
    std::optional<TimePoint> starts{};
  };

  void collect_clients() {
    for (const Record& lease : sources_.leases) leases_.push_back({&lease, &sources_.host, false});
    for (const TicketStatus& ticket : sources_.queue) collect_ticket(ticket, sources_.host, false);
    for (const Status& other : sources_.other_hosts) {
      for (const Record& lease : other.leases) leases_.push_back({&lease, &other.host, true});
      for (const TicketStatus& ticket : other.queue) collect_ticket(ticket, other.host, true);
    }
  }

  void collect_ticket(const TicketStatus& ticket, const std::string& host, bool is_remote) {
    const auto [known, is_new] = ticket_index_.emplace(key(ticket.record), tickets_.size());
    if (is_new) tickets_.push_back({&ticket.record, is_remote});
    TicketPlaces& places = tickets_[known->second];
    places.hosts.push_back(host);
    places.reasons.push_back(ticket.reason);
    places.position = is_new ? ticket.position : std::min(places.position, ticket.position);
    if (ticket.starts)
      places.starts = std::min(places.starts.value_or(*ticket.starts), *ticket.starts);
  }

  bool is_own(const Record& record) const { return record.uid == sources_.viewer; }
  bool is_own(const HistoryEntry& entry) const {
    return LeaseFilter{sources_.viewer, user_name(sources_.viewer), ""}.matches(
        entry.uid, entry.user, entry.host);
  }

  // A remote lease is identified by its host, too. Its owner may have another uid in the history.
  bool is_used(const LeasePlace& lease) const {
    if (!lease.is_remote) return used_.contains(key(*lease.record));
    return used_remote_.contains({*lease.host, lease.record->id});
  }
  void mark_used(const LeasePlace& lease) {
    if (lease.is_remote) {
      used_remote_.insert({*lease.host, lease.record->id});
    } else {
      used_.insert(key(*lease.record));
    }
  }

  // The ticket or lease is one of the detached job: by its id, or by the process that wrote it.
  bool belongs_to(const Record& record, bool is_remote, const DetachedJob& job) const {
    if (!is_own(record)) return false;
    // Redis may name any id: a job that runs here has nothing on other hosts.
    if (is_remote && job.spec.remote_hosts.empty()) return false;
    const auto& grants = job.grants;
    const bool is_named = record.id == job.spec.id || record.job_id == job.spec.id ||
                          std::any_of(grants.begin(), grants.end(), [&](const JobGrant& grant) {
                            return grant.lease == record.id;
                          });
    if (is_named) return true;
    const auto& process = job.process;
    // PIDs of other hosts mean nothing here, even if the number of the namespace is the same.
    if (is_remote || !job.is_alive || !process || record.pid <= 0 ||
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

  static void set_waiting(const TicketPlaces& ticket, JobInfo& info) {
    info.state = JobState::waiting;
    const bool is_one = ticket.hosts.size() == 1;
    info.host = is_one ? ticket.hosts.front() : "";
    info.queue_hosts = ticket.hosts;
    info.position = ticket.position;
    info.expected_start = ticket.starts;
    info.reason = is_one ? ticket.reasons.front() : "";
    for (std::size_t i = 0; !is_one && i < ticket.hosts.size(); ++i) {
      info.reason += fmt::format("{}{}: {}", i == 0 ? "" : "; ", ticket.hosts[i],
                                 ticket.reasons[i].empty() ? "waits" : ticket.reasons[i]);
    }
  }

  void add_detached(const DetachedJob& job) {
    JobInfo info;
    info.id = job.spec.id;
    info.user = user_name(sources_.viewer);
    if (job.spec.remote_hosts.empty()) info.host = job.spec.host;
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
      info.host = job.grants.back().host.empty() ? job.spec.host : job.grants.back().host;
    }
    set_state(job, info);
    used_.insert({sources_.viewer, job.spec.id});
    for (const std::string& lease : info.leases) used_.insert({sources_.viewer, lease});
    jobs_.push_back(std::move(info));
  }

  void set_state(const DetachedJob& job, JobInfo& info) {
    std::vector<LeasePlace> leases;
    for (const LeasePlace& lease : leases_) {
      if (!belongs_to(*lease.record, lease.is_remote, job)) continue;
      leases.push_back(lease);
      mark_used(lease);
    }
    const TicketPlaces* ticket = nullptr;
    for (const TicketPlaces& one : tickets_) {
      if (!belongs_to(*one.record, one.is_remote, job)) continue;
      if (ticket == nullptr) ticket = &one;
      used_.insert(key(*one.record));
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
    } else if (sources_.held_jobs.contains(job.spec.id)) {  // in another harbour
      info.state = JobState::running;
      info.reason = kExitCodeWillBeLost;
    } else if (!job.is_alive) {
      info.state = JobState::ended;
      info.reason = kExitCodeLost;
      set_remote_end(job, info);
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
      info.reason = job.spec.harbour == sources_.harbour
                        ? "it has not joined the queue yet"
                        : fmt::format("it uses another harbour: {}", job.spec.harbour);
    } else {
      info.state = JobState::running;
    }
  }

  // What the other host has recorded about a job whose berth process here was killed.
  void set_remote_end(const DetachedJob& job, JobInfo& info) const {
    if (job.spec.remote_hosts.empty()) return;
    for (const HistoryEntry& entry : sources_.history) {
      if (entry.job_id != job.spec.id || !is_own(entry)) continue;
      info.host = entry.host;
      info.started = entry.granted;
      info.gpus = gpus_of(entry);
      add_unique(info.leases, entry.id);
      set_end(entry, info);
    }
  }

  void set_running(const std::vector<LeasePlace>& leases, JobInfo& info) const {
    info.state = JobState::running;
    info.host = *leases.front().host;
    info.gpus.clear();
    const bool is_batch = info.origin == JobOrigin::batch;
    if (!is_batch || !info.started) info.started = leases.front().record->granted;
    std::vector<const Record*> records;
    for (const LeasePlace& lease : leases) {
      records.push_back(lease.record);
      add_unique(info.leases, lease.record->id);
      add_gpus(*lease.record, info);
    }
    if (!is_batch) info.expected_end = find_last_end(records, sources_.now);
  }

  JobInfo describe(const Record& record) const {
    JobInfo info;
    info.id = record.job_id.empty() ? record.id : record.job_id;
    info.user = user_name(record.uid);
    info.is_own = is_own(record);
    info.origin = record.holder == HolderKind::shell ? JobOrigin::shell : JobOrigin::run;
    if (record.adopted_start) info.origin = JobOrigin::adopted;
    info.command = record.command;
    info.label = record.label;
    info.submitted = record.since;
    if (!record.is_readable()) info.reason = record.problem;
    return info;
  }

  void add_lease(const LeasePlace& lease) {
    JobInfo info = describe(*lease.record);
    set_running({lease}, info);
    mark_used(lease);
    if (!lease.record->job_id.empty()) used_.insert({lease.record->uid, lease.record->job_id});
    jobs_.push_back(std::move(info));
  }

  void add_ticket(const TicketPlaces& ticket) {
    JobInfo info = describe(*ticket.record);
    set_waiting(ticket, info);
    used_.insert(key(*ticket.record));
    jobs_.push_back(std::move(info));
  }

  static std::vector<std::string> gpus_of(const HistoryEntry& entry) {
    std::vector<std::string> gpus;
    for (const HistoryGpu& gpu : entry.gpus)
      gpus.push_back(gpu.index.empty() ? gpu.uuid : gpu.index);
    return gpus;
  }

  // Of an entry that is not Ending::running.
  static void set_end(const HistoryEntry& entry, JobInfo& info) {
    if (entry.ending == Ending::lost) {
      info.reason = kExitCodeLost;
      return;
    }
    info.ended = entry.ended;
    info.reason.clear();
    info.is_released = entry.ending == Ending::released;
    if (info.is_released) info.origin = JobOrigin::shell;
    if (entry.adopted) info.origin = JobOrigin::adopted;
    if (entry.ending == Ending::exited) info.exit_code = entry.code;
    if (entry.ending == Ending::killed) info.exit_code = 128 + entry.code;
  }

  bool is_listed(const HistoryEntry& entry, bool own) const {
    const uid_t uid = own ? sources_.viewer : entry.uid;
    if (!entry.job_id.empty() && used_.contains({uid, entry.job_id})) return true;
    const bool is_local = entry.host.empty() || entry.host == sources_.host;
    return is_local ? used_.contains({uid, entry.id})
                    : used_remote_.contains({entry.host, entry.id});
  }

  void add_entry(const HistoryEntry& entry) {
    const bool own = is_own(entry);
    if (is_listed(entry, own)) return;
    JobInfo info;
    info.id = is_id(entry.job_id) ? entry.job_id : entry.id;
    info.user = user_name(entry.uid, entry.user);
    info.host = entry.host.empty() ? sources_.host : entry.host;
    info.is_own = own;
    info.command = entry.command;
    info.label = entry.label;
    info.leases = {entry.id};
    info.gpus = gpus_of(entry);
    info.submitted = entry.asked;
    info.started = entry.granted;
    if (entry.ending == Ending::running) {
      info.state = JobState::running;
    } else {
      set_end(entry, info);
    }
    // The attempts of --retry-oom are one job.
    const auto earlier = std::find_if(jobs_.begin(), jobs_.end(), [&](const JobInfo& one) {
      return !entry.job_id.empty() && one.id == info.id && one.user == info.user;
    });
    if (earlier == jobs_.end()) {
      jobs_.push_back(std::move(info));
    } else {
      info.leases.insert(info.leases.begin(), earlier->leases.begin(), earlier->leases.end());
      *earlier = std::move(info);
    }
  }

  const JobSources& sources_;
  std::vector<LeasePlace> leases_;
  std::vector<TicketPlaces> tickets_;
  std::map<Key, std::size_t> ticket_index_;
  std::set<Key> used_;
  std::set<std::pair<std::string, std::string>> used_remote_;  // host and id of a lease
  std::vector<JobInfo> jobs_;
};

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
    case JobOrigin::adopted:
      return "adopted";
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

}  // namespace berth
