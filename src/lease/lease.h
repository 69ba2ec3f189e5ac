// A lease that this process holds: kept alive by its bell, given back by release() or by the end of
// every process that has the bell.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "devices/gpu.h"
#include "harbour/harbour.h"

namespace berth {

class Lease {
 public:
  // `record` is written in `harbour`, and `bell` is its bell. `gpus` is every GPU of the host.
  Lease(Harbour harbour, Record record, UniqueFd bell, std::vector<Gpu> gpus)
      : harbour_(std::move(harbour)),
        record_(std::move(record)),
        bell_(std::move(bell)),
        gpus_(std::move(gpus)) {}
  Lease(Lease&&) = default;
  Lease& operator=(Lease&&) = default;
  // Does not release: the job may hold the bell still, and whoever dies releases anyway.
  ~Lease() = default;

  const std::string& id() const { return record_.id; }
  const Record& record() const { return record_; }
  const std::vector<Gpu>& host_gpus() const { return gpus_; }
  Harbour& harbour() { return harbour_; }

  // To be inherited by the job, which keeps the lease alive with it.
  int bell() const { return bell_.get(); }
  // A copy of it that every program inherits (not close-on-exec), above the numbers that scripts
  // choose by hand. Empty, with errno set, if there is no descriptor left.
  UniqueFd make_inheritable_bell() const;

  // Gives the lease back, unless other processes hold the bell: then it stays until they are gone,
  // and this is false. Works on a full disk.
  bool release();

  // Leaves the bell to another process, which releases the lease then and must not find us with it.
  void hand_over_bell() { bell_.reset(); }

  // Tells when its files may have been deleted by somebody: readable then. -1 if the kernel has no
  // watch left; restore() can be called at any time instead.
  int deletion_watch_fd();

  // Says that it lives, where that must be said again and again (in a harbour of several hosts), if
  // it is time to; puts it back if the server has lost it. Gives how long until the next time.
  // Never waits for a server longer than a connection takes.
  std::chrono::milliseconds maintain_heartbeat();
  // Was it told to end, by its owner or root? A job's lease never is: it ends with its processes.
  bool is_ended() const;

  // Puts the lease back if its files were deleted; then says what the user should hear of it.
  std::optional<std::string> restore_if_deleted();

 private:
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

}  // namespace berth
