// The newest state, rendered once for all clients: StatusPoller publishes it, HTTP threads read it.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "archive/lease_table.h"
#include "base/mutex.h"
#include "serve/http_response.h"

namespace berth::serve {

// Immutable once it is published. Each version grows by one with each change of its data; a
// ViewerStream compares it with the version that it has sent.
struct ServeSnapshot {
  // Complete documents, of the last poll that succeeded (metrics: of the last poll). Null before
  // the first one.
  SharedText status{};   // GET /status
  SharedText queue{};    // GET /queue
  SharedText metrics{};  // GET /metrics
  // The status for the event stream: with fewer tickets, on one line.
  SharedText stream_status{};
  std::uint64_t status_version = 0;  // also grows when a poll succeeds after one that failed

  // The detached jobs of the user who runs the server, for holders of the token; on one line. Null
  // if they are not known yet.
  SharedText jobs{};
  std::uint64_t jobs_version = 0;

  SharedText samples{};  // the last hour, for GET /samples; on one line
  SharedText sample{};   // only the newest sample
  std::uint64_t sample_version = 0;

  std::string problem{};  // why the last poll failed; empty if it succeeded
  std::uint64_t problem_version = 0;
  std::uint64_t history_version = 0;  // grows when leases have ended, at most every few seconds

  std::vector<GpuIdentity> gpus{};  // of all hosts, with their current names
  // For change requests: the GPUs of this host, and the leases of all hosts.
  std::set<std::string> local_gpu_uuids{};
  std::set<std::string> lease_ids{};
};

using SharedServeSnapshot = std::shared_ptr<const ServeSnapshot>;

// Holds the newest snapshot. Thread-safe; a reader keeps its snapshot alive by the shared pointer.
class SnapshotPublisher {
 public:
  SnapshotPublisher() : snapshot_(std::make_shared<const ServeSnapshot>()) {}

  void publish(SharedServeSnapshot snapshot) {
    const MutexLock lock(mutex_);
    snapshot_ = std::move(snapshot);
  }
  SharedServeSnapshot current() const {
    const MutexLock lock(mutex_);
    return snapshot_;
  }

 private:
  mutable Mutex mutex_;
  SharedServeSnapshot snapshot_ GUARDED_BY(mutex_);
};

}  // namespace berth::serve
