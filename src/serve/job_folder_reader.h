// Reads the folders of the user's detached jobs for the StatusPoller, in a thread of its own.
//
// The folders are in the user's home, which may be on a file server that hangs: then only the list
// of jobs stays as it was, and the status goes on.
#pragma once

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "run/job_folder.h"
#include "serve/viewer_activity.h"

namespace berth::serve {

struct JobFolders {
  std::vector<DetachedJob> jobs{};
  std::set<std::string> held{};  // see JobSources::held_jobs
};
using SharedJobFolders = std::shared_ptr<const JobFolders>;

// Thread-safe. `viewer_activity` must outlive it.
class JobFolderReader {
 public:
  explicit JobFolderReader(const ViewerActivity& viewer_activity);
  JobFolderReader(const JobFolderReader&) = delete;
  JobFolderReader& operator=(const JobFolderReader&) = delete;
  // Waits for the read that is under way.
  ~JobFolderReader();

  // What the last read found. Null before the first read has ended.
  SharedJobFolders current() const;
  // Reads soon: the user's leases or tickets have changed.
  void request_read();
  // Waits until the first read has ended, at most for `time`.
  void wait_for_first_read(std::chrono::milliseconds time);

 private:
  using Clock = std::chrono::steady_clock;

  void run();

  const ViewerActivity& viewer_activity_;
  mutable Mutex mutex_;
  Condition changed_;
  SharedJobFolders folders_ GUARDED_BY(mutex_);
  bool requested_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last member: it uses the ones above
};

}  // namespace berth::serve
