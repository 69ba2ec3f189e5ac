// Reads job folders at a pace that costs little; see job_folder_reader.h.
#include "serve/job_folder_reader.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "run/job_sources.h"

namespace berth::serve {
namespace {

constexpr std::chrono::milliseconds kMinInterval(250);  // also if a read is requested
constexpr std::chrono::milliseconds kViewedInterval(2'000);
constexpr std::chrono::milliseconds kIdleInterval(10'000);
// A batch of many lines has a long file of events. Reading takes at most a part of this thread's
// time.
constexpr int kMinPauseFactor = 20;
// A batch has a grant for each line. The list needs the first, and those of the lines that run.
constexpr std::size_t kMaxGrants = 1'000;

JobFolders read_folders(std::vector<DetachedJob> known) {
  auto jobs = list_jobs(std::move(known));
  if (!jobs) return {};  // a user without a home folder has no detached jobs
  std::set<std::string> held = find_held_jobs(*jobs);
  for (DetachedJob& job : *jobs) {
    if (job.grants.size() <= kMaxGrants) continue;
    job.grants.erase(job.grants.begin() + 1, job.grants.end() - (kMaxGrants - 1));
  }
  return {std::move(*jobs), std::move(held)};
}

}  // namespace

JobFolderReader::JobFolderReader(const ViewerActivity& viewer_activity)
    : viewer_activity_(viewer_activity), thread_([this] { run(); }) {}

JobFolderReader::~JobFolderReader() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

SharedJobFolders JobFolderReader::current() const {
  const MutexLock lock(mutex_);
  return folders_;
}

void JobFolderReader::request_read() {
  {
    const MutexLock lock(mutex_);
    requested_ = true;
  }
  changed_.notify_all();
}

void JobFolderReader::wait_for_first_read(std::chrono::milliseconds time) {
  const auto until = Clock::now() + time;
  MutexLock lock(mutex_);
  while (!folders_ && changed_.wait_until(mutex_, until)) {
  }
}

void JobFolderReader::run() {
  for (;;) {
    const SharedJobFolders known = current();
    const auto begin = Clock::now();
    auto folders = read_folders(known ? known->jobs : std::vector<DetachedJob>());
    const auto end = Clock::now();
    MutexLock lock(mutex_);
    folders_ = std::make_shared<const JobFolders>(std::move(folders));
    changed_.notify_all();
    for (;;) {
      if (stopping_) return;
      const bool viewed = viewer_activity_.has_viewers(Clock::now());
      const auto interval = requested_ ? kMinInterval : viewed ? kViewedInterval : kIdleInterval;
      const auto due = std::max(begin + interval, end + kMinPauseFactor * (end - begin));
      if (Clock::now() >= due) break;
      changed_.wait_until(mutex_, std::min(due, Clock::now() + kViewedInterval));  // for a viewer
    }
    requested_ = false;
  }
}

}  // namespace berth::serve
