// What was last seen, rendered once, for all who ask: written by the thread that looks, read by
// those that answer.
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

// Immutable once it is published. Numbers grow by one with each change of what they count: a viewer
// compares them with those that he has.
struct ServeSnapshot {
  // Of the last look that succeeded; null if there was none yet. Each is a whole document.
  SharedText status{};   // GET /status
  SharedText queue{};    // GET /queue
  SharedText metrics{};  // GET /metrics
  // Of the stream: the same with less of the queue, on one line.
  SharedText stream_status{};
  std::uint64_t status_version = 0;  // also grows when a look succeeds behind one that failed

  SharedText samples{};  // the last hour, as GET /samples has it; on one line
  SharedText sample{};   // the newest alone
  std::uint64_t sample_version = 0;

  std::string problem{};  // why the last look failed; empty if it did not
  std::uint64_t problem_version = 0;
  std::uint64_t history_version = 0;  // leases that ended, as far as viewers are told

  std::vector<GpuIdentity> gpus{};  // of all hosts, as they are named now
  // For changes: which GPUs there are here, and which leases.
  std::set<std::string> local_gpu_uuids{};
  std::set<std::string> lease_ids{};
};

using SharedServeSnapshot = std::shared_ptr<const ServeSnapshot>;

// The place where the newest picture hangs. Every thread may use it.
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
