// Polls the hosts and renders snapshots; see status_poller.h.
#include "serve/status_poller.h"

#include <algorithm>
#include <array>
#include <poll.h>
#include <unistd.h>
#include <utility>

#include "serve/job_api.h"
#include "serve/load_file.h"
#include "serve/metrics.h"
#include "status/status_json.h"

namespace berth::serve {
namespace {

constexpr std::chrono::milliseconds kViewedInterval(1000);
// Without viewers, polls only feed the samples and the metrics. The interval must stay below ten
// seconds: the helper process that calls the driver exits after that time without a request, and
// starting the driver again can take as long.
constexpr std::chrono::milliseconds kIdleInterval(5000);
constexpr std::size_t kMaxStreamedTickets = 200;
// So much of the load history is lost when the server is killed.
constexpr std::chrono::minutes kSaveInterval(1);

// The data of an event must be one line.
std::string without_newline(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

TimePoint wall_clock() {
  return std::chrono::system_clock::now();
}

}  // namespace

StatusPoller::StatusPoller(SnapshotPublisher& publisher, ViewerActivity& viewer_activity,
                           CommandVisibility command_visibility, Callbacks callbacks,
                           JobFolderReader* job_reader)
    : publisher_(publisher),
      viewer_activity_(viewer_activity),
      command_visibility_(std::move(command_visibility)),
      callbacks_(std::move(callbacks)),
      job_reader_(job_reader),
      counters_(wall_clock()) {
  gpu_load_samples_.restore(read_load_file(harbour_location()), wall_clock());
}

void StatusPoller::render_status(const std::vector<Status>& hosts, ServeSnapshot& snapshot) const {
  snapshot.status = share_text(hosts_json(hosts, JsonForm::line, {command_visibility_, {}}));
  snapshot.queue = share_text(hosts_queue_json(hosts, JsonForm::line, {command_visibility_, {}}));
  std::string streamed = without_newline(
      hosts_json(hosts, JsonForm::line, {command_visibility_, kMaxStreamedTickets}));
  const bool problem_cleared = !snapshot.problem.empty();
  if (problem_cleared || !snapshot.stream_status || *snapshot.stream_status != streamed) {
    snapshot.stream_status = share_text(std::move(streamed));
    ++snapshot.status_version;
  }
  snapshot.local_gpu_uuids.clear();
  snapshot.lease_ids.clear();
  snapshot.gpus.clear();
  for (const Status& host : hosts) {
    for (const Record& lease : host.leases) snapshot.lease_ids.insert(lease.id);
    for (const GpuStatus& one : host.gpus) {
      const Gpu& gpu = one.view.gpu;
      if (!gpu.uuid) continue;
      snapshot.gpus.push_back({*gpu.uuid, to_string(gpu.index), gpu.name.value_or(""), host.host});
      if (!host.is_remote) snapshot.local_gpu_uuids.insert(*gpu.uuid);
    }
  }
}

// The state of a job is in its folder and in the harbour. When the harbour has changed, the folder
// probably has, too.
void StatusPoller::render_jobs(const std::vector<Status>& hosts, ServeSnapshot& snapshot) {
  const auto host =
      std::find_if(hosts.begin(), hosts.end(), [](const Status& one) { return !one.is_remote; });
  if (job_reader_ == nullptr || host == hosts.end()) return;
  std::set<std::string> own_clients;
  for (const Record& lease : host->leases) {
    if (lease.uid == ::geteuid()) own_clients.insert("lease " + lease.id);
  }
  for (const TicketStatus& ticket : host->queue) {
    if (ticket.record.uid == ::geteuid()) own_clients.insert("ticket " + ticket.record.id);
  }
  if (own_clients != own_clients_) job_reader_->request_read();
  own_clients_ = std::move(own_clients);
  const SharedJobFolders folders = job_reader_->current();
  if (!folders) return;
  std::string list = make_job_list(*folders, hosts, wall_clock(), command_visibility_.has_value());
  if (snapshot.jobs && *snapshot.jobs == list) return;
  snapshot.jobs = share_text(std::move(list));
  ++snapshot.jobs_version;
}

void StatusPoller::render_samples(const Result<std::vector<Status>>& hosts,
                                  ServeSnapshot& snapshot) {
  const bool is_new_sample = hosts ? gpu_load_samples_.add_sample(*hosts, wall_clock())
                                   : gpu_load_samples_.add_unknown_sample(wall_clock());
  if (!is_new_sample && snapshot.samples) return;
  snapshot.samples = share_text(gpu_load_samples_.all_json());
  snapshot.sample = share_text(gpu_load_samples_.newest_json());
  ++snapshot.sample_version;
}

void StatusPoller::save_samples(Clock::time_point now) {
  if (samples_saved_ && now - *samples_saved_ < kSaveInterval) return;
  samples_saved_ = now;
  write_load_file(harbour_location(), gpu_load_samples_.serialize());
}

void StatusPoller::render_metrics(const Result<std::vector<Status>>& hosts,
                                  ServeSnapshot& snapshot) {
  static const std::vector<Status> no_hosts;
  if (hosts) {
    counters_.observe_status(*hosts);
    last_success_ = wall_clock();
  }
  snapshot.metrics =
      share_text(format_metrics({hosts ? *hosts : no_hosts, counters_, hosts.has_value(),
                                 last_success_, wall_clock(), BERTH_VERSION}));
}

void StatusPoller::schedule_history_update(Clock::time_point time) {
  constexpr std::chrono::seconds kMinHistoryInterval(5);
  time = std::max(time, history_announced_ + kMinHistoryInterval);
  history_due_ = history_due_ ? std::min(*history_due_, time) : time;
}

// Counts the new lines of the history, and announces leases that have ended.
void StatusPoller::read_history(Clock::time_point now) {
  const HarbourLocation where = harbour_location();
  if (!history_follower_) {
    auto opened = follow_history(where);
    if (!opened) return;  // the Redis server does not answer: the next poll tries again
    history_follower_ = std::move(*opened);
  }
  for (const HistoryEntry& entry : history_follower_->read_new_entries()) {
    counters_.add_history_entry(entry, local_host_name(where));
    if (entry.ending != Ending::running) schedule_history_update(now);
  }
}

// Detects leases that have left the harbour. A client that was killed writes no line into the
// history until another client finds its remains. Other clients write a line a moment after the
// release; for them this is only a second indication.
void StatusPoller::detect_endings(const std::vector<Status>& hosts, Clock::time_point now) {
  constexpr std::chrono::seconds kWriteDelay(1);
  std::set<std::string> running;
  for (const Status& host : hosts) {
    for (const Record& lease : host.leases) running.insert(host.host + "/" + lease.id);
  }
  const bool ended = !std::includes(running.begin(), running.end(), running_leases_.begin(),
                                    running_leases_.end());
  if (ended) schedule_history_update(now + kWriteDelay);
  running_leases_ = std::move(running);
}

void StatusPoller::poll() {
  last_poll_ = Clock::now();
  const auto hosts = watcher_.observe();
  const auto now = Clock::now();
  ServeSnapshot snapshot = last_snapshot_;
  if (hosts) {
    render_status(*hosts, snapshot);
    render_jobs(*hosts, snapshot);
    detect_endings(*hosts, now);
  }
  read_history(now);
  render_samples(hosts, snapshot);
  save_samples(now);
  render_metrics(hosts, snapshot);
  std::string problem = hosts ? "" : hosts.error().message;
  if (problem != snapshot.problem) {
    snapshot.problem = std::move(problem);
    ++snapshot.problem_version;
  }
  if (history_due_ && *history_due_ <= now) {
    history_due_.reset();
    history_announced_ = now;
    ++snapshot.history_version;
    callbacks_.on_history();
  }
  last_snapshot_ = snapshot;
  publisher_.publish(std::make_shared<const ServeSnapshot>(std::move(snapshot)));
  callbacks_.on_snapshot();
}

// The time from the start of the last poll to the next one.
std::chrono::milliseconds StatusPoller::poll_interval() const {
  const auto now = Clock::now();
  const auto until = [&](auto time_left) {
    return std::chrono::ceil<std::chrono::milliseconds>(now - last_poll_ + time_left);
  };
  const auto since_last_sample = wall_clock().time_since_epoch() % kSampleInterval;
  auto time =
      std::min(kIdleInterval, until(kSampleInterval - since_last_sample));  // to the next sample
  if (history_due_) time = std::min(time, until(*history_due_ - now));
  if (viewer_activity_.has_viewers(now)) time = std::min(time, kViewedInterval);
  return std::max(time, std::chrono::milliseconds(0));
}

void StatusPoller::wait() {
  // The interval is computed anew after each wake-up: a new viewer shortens it.
  for (;;) {
    std::array<pollfd, 1> wake_fds{{{viewer_activity_.wake_event().fd(), POLLIN, 0}}};
    // Without viewers, changes in the harbour do not cause a poll: in a busy harbour the driver
    // would be called all the time.
    if (watcher_.wait(poll_interval(), wake_fds, viewer_activity_.has_viewers(Clock::now())))
      return;
    viewer_activity_.wake_event().clear();
    if (viewer_activity_.consume_change()) return;
  }
}

}  // namespace berth::serve
