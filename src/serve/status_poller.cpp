// Looking, and drawing what was seen; see looker.h.
#include "serve/status_poller.h"

#include <algorithm>
#include <array>
#include <poll.h>
#include <utility>

#include "serve/metrics.h"
#include "status/status_json.h"

namespace berth {
namespace {

constexpr std::chrono::milliseconds kWatched(1000);
// While nobody watches there are only samples to be taken. The helper that asks the driver would
// leave after ten seconds without a question, and to start a driver again can take as long.
constexpr std::chrono::milliseconds kUnwatched(5000);
constexpr std::size_t kStreamedTickets = 200;

SharedText shared(std::string text) {
  return std::make_shared<const std::string>(std::move(text));
}

// An event's data is one line.
std::string without_newline(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

TimePoint wall_clock() {
  return std::chrono::system_clock::now();
}

}  // namespace

StatusPoller::StatusPoller(SnapshotPublisher& board, ViewerCount& audience, CommandVisibility commands_of, Callbacks tells)
    : board_(board),
      audience_(audience),
      commands_of_(std::move(commands_of)),
      tells_(std::move(tells)),
      tally_(wall_clock()) {}

void StatusPoller::draw(const std::vector<Status>& hosts, ServeSnapshot& picture) const {
  picture.status = shared(hosts_json(hosts, JsonForm::line, {commands_of_, {}}));
  picture.queue = shared(hosts_queue_json(hosts, JsonForm::line, {commands_of_, {}}));
  std::string streamed =
      without_newline(hosts_json(hosts, JsonForm::line, {commands_of_, kStreamedTickets}));
  const bool healed = !picture.problem.empty();
  if (healed || !picture.stream_status || *picture.stream_status != streamed) {
    picture.stream_status = shared(std::move(streamed));
    ++picture.status_number;
  }
  picture.uuids.clear();
  picture.leases.clear();
  picture.gpus.clear();
  for (const Status& host : hosts) {
    for (const Record& lease : host.leases) picture.leases.insert(lease.id);
    for (const GpuStatus& one : host.gpus) {
      const Gpu& gpu = one.placed.gpu;
      if (!gpu.uuid) continue;
      picture.gpus.push_back({*gpu.uuid, to_string(gpu.index), gpu.name.value_or(""), host.host});
      if (!host.elsewhere) picture.uuids.insert(*gpu.uuid);
    }
  }
}

void StatusPoller::draw_samples(const Result<std::vector<Status>>& hosts, ServeSnapshot& picture) {
  const bool sampled =
      hosts ? samples_.take(*hosts, wall_clock()) : samples_.take_nothing(wall_clock());
  if (!sampled) return;
  picture.samples = shared(samples_.all());
  picture.sample = shared(samples_.newest());
  ++picture.sample_number;
}

void StatusPoller::draw_metrics(const Result<std::vector<Status>>& hosts, ServeSnapshot& picture) {
  static const std::vector<Status> nothing;
  if (hosts) {
    tally_.see(*hosts);
    seen_ = wall_clock();
  }
  picture.metrics = shared(metrics_text(
      {hosts ? *hosts : nothing, tally_, hosts.has_value(), seen_, wall_clock(), BERTH_VERSION}));
}

void StatusPoller::tell_history_by(Clock::time_point time) {
  constexpr std::chrono::seconds kAtMostEvery(5);
  time = std::max(time, history_told_ + kAtMostEvery);
  history_due_ = history_due_ ? std::min(*history_due_, time) : time;
}

// What is written when a lease ends.
void StatusPoller::read_news(Clock::time_point now) {
  const HarbourLocation where = harbour_location();
  if (!news_) {
    auto opened = follow_history(where);
    if (!opened) return;  // while the server is away: the next look tries again
    news_ = std::move(*opened);
  }
  for (const HistoryEntry& entry : news_->next()) {
    tally_.take(entry, this_host(where));
    if (entry.ending != Ending::running) tell_history_by(now);
  }
}

// Of who was killed nothing is written until somebody finds it. For the others this is only the
// second sign; they write a moment behind the release.
void StatusPoller::note_endings(const std::vector<Status>& hosts, Clock::time_point now) {
  constexpr std::chrono::seconds kWritten(1);
  std::set<std::string> running;
  for (const Status& host : hosts) {
    for (const Record& lease : host.leases) running.insert(host.host + "/" + lease.id);
  }
  const bool ended =
      !std::includes(running.begin(), running.end(), running_.begin(), running_.end());
  if (ended) tell_history_by(now + kWritten);
  running_ = std::move(running);
}

void StatusPoller::look() {
  looked_ = Clock::now();
  const auto hosts = lookout_.look();
  const auto now = Clock::now();
  ServeSnapshot picture = last_;
  if (hosts) {
    draw(*hosts, picture);
    note_endings(*hosts, now);
  }
  read_news(now);
  draw_samples(hosts, picture);
  draw_metrics(hosts, picture);
  std::string problem = hosts ? "" : hosts.error().message;
  if (problem != picture.problem) {
    picture.problem = std::move(problem);
    ++picture.problem_number;
  }
  if (history_due_ && *history_due_ <= now) {
    history_due_.reset();
    history_told_ = now;
    ++picture.history_number;
    tells_.history();
  }
  last_ = picture;
  board_.publish(std::make_shared<const ServeSnapshot>(std::move(picture)));
  tells_.picture();
}

// Behind the last look.
std::chrono::milliseconds StatusPoller::period() const {
  const auto now = Clock::now();
  const auto until = [&](auto time_left) {
    return std::chrono::ceil<std::chrono::milliseconds>(now - looked_ + time_left);
  };
  const auto passed = wall_clock().time_since_epoch() % kSampleInterval;
  auto time = std::min(kUnwatched, until(kSampleInterval - passed));  // to the next sample
  if (history_due_) time = std::min(time, until(*history_due_ - now));
  if (audience_.anybody(now)) time = std::min(time, kWatched);
  return std::max(time, std::chrono::milliseconds(0));
}

void StatusPoller::wait() {
  // Again after each wake: who came may want it sooner.
  for (;;) {
    std::array<pollfd, 1> others{{{audience_.poke().fd(), POLLIN, 0}}};
    // Where nobody watches, what goes on in a busy harbour is no reason to ask the driver.
    if (lookout_.wait(period(), others, audience_.anybody(Clock::now()))) return;
    audience_.poke().clear();
    if (audience_.take_changed()) return;
  }
}

}  // namespace berth
