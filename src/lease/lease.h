// A lease that this process holds. It lasts until release(), or until every process that has its
// bell open has ended.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "devices/gpu.h"
#include "harbour/harbour.h"
#include "harbour/location.h"

namespace berth {

// Not thread-safe.
class Lease {
 public:
  // `record` must be written in `harbour`, with `bell`. `gpus` are all GPUs of the host.
  Lease(Harbour harbour, Record record, UniqueFd bell, std::vector<Gpu> gpus)
      : harbour_(std::move(harbour)),
        record_(std::move(record)),
        bell_(std::move(bell)),
        gpus_(std::move(gpus)) {}
  Lease(Lease&&) = default;
  Lease& operator=(Lease&&) = default;
  // Does not release: the job may still hold the bell, and the kernel closes the bell of a process
  // that ends.
  ~Lease() = default;

  const std::string& id() const { return record_.id; }
  const Record& record() const { return record_; }
  const std::vector<Gpu>& host_gpus() const { return gpus_; }
  Harbour& harbour() { return harbour_; }

  // A job that inherits this descriptor keeps the lease alive.
  int bell() const { return bell_.get(); }
  // A copy of the bell that every program inherits (not close-on-exec), above the numbers that
  // shell scripts choose. Empty, with errno set, if there is no descriptor left.
  UniqueFd make_inheritable_bell() const;

  // The patience for release() after a fork: a helper process that was started a moment ago still
  // has the bell, until it closes its descriptors.
  static constexpr std::chrono::milliseconds kForkPatience{200};

  // Closes the bell and removes the lease's files. False if other processes hold the bell, even
  // after `patience`: then the lease stays until they have ended. Works on a full disk.
  bool release(std::chrono::milliseconds patience = std::chrono::milliseconds(0));

  // Closes this process's bell. Another process holds it as well and releases the lease later,
  // which works only if this process does not hold the bell any more.
  void hand_over_bell() { bell_.reset(); }

  // A descriptor that becomes readable when the lease's files may have been deleted. -1 if the
  // kernel has no inotify instance left: then call restore_if_deleted() from time to time.
  int deletion_watch_fd();

  // In a harbour of several hosts, sends a heartbeat if one is due, and writes the lease again if
  // the server has lost it. Returns the time until the next call is due. Does not wait for a reply:
  // it blocks no longer than connecting to the server takes.
  std::chrono::milliseconds maintain_heartbeat();
  // True if the owner or root has ended the lease ('berth release'). Only a shell's lease can be
  // ended so: a job's lease ends with its processes.
  bool is_ended() const;

  // Writes the lease's files again if they were deleted. Returns a message for the user if it did,
  // or could not. Calls update_announced_end().
  std::optional<std::string> restore_if_deleted();

  // Reads the end that 'berth extend' has announced for this lease, in another process.
  void update_announced_end();

 private:
  void add_watches();
  void handle_heartbeat_reply(const Result<HeartbeatReply>& reply);
  Result<bool> restore_once();
  Result<void> rewrite_files(int directory);

  Harbour harbour_;
  Record record_;
  UniqueFd bell_;
  std::vector<Gpu> gpus_;
  UniqueFd inotify_fd_;
  std::chrono::steady_clock::time_point last_heartbeat_ = std::chrono::steady_clock::now();
};

// Opens the bell of a lease that another process of this user holds, so that the lease lasts as
// long as this descriptor is open: for a child process that did not inherit the bell. Nothing if
// this user has no lease `id`, or it is a shell's lease, which can be released while its programs
// run. Creates no harbour.
Result<std::optional<UniqueFd>> attach_to_lease(const std::string& id, HarbourLocation location);

}  // namespace berth
