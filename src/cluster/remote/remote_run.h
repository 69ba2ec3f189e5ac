// `berth run --host`: runs a job by ssh on the first host that has GPUs for it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cluster/store/redis_store.h"
#include "devices/probe.h"
#include "lease/acquire.h"
#include "lease/lease.h"
#include "run/output_limit.h"

namespace berth {

struct RemoteJob {
  std::vector<std::string> hosts;   // where the job may run
  bool skip_unknown_hosts = false;  // leave out hosts that the harbour does not know; else an error
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> flags;  // of `berth run` on the other host
  std::vector<std::string> command;
  // Of a detached job, which has no terminal. If `on_wait` is set, the wait is not displayed.
  std::function<void()> on_wait{};
  std::function<void(const RedisHostStore::Claim&)> on_granted{};
  std::optional<OutputLimit> output_limit{};
};

// Waits until a host grants the request. Returns the exit code of the job if it ran on another
// host; or the lease if this host was first, and then the caller runs the job. If `probe` is null,
// this host is not used.
Result<std::variant<int, Lease>> run_remote_job(const AcquireRequest& request, const RemoteJob& job,
                                                Probe* probe);

}  // namespace berth
