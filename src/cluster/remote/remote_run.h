// `berth run --host`: a job on whichever host has GPUs for it first, by ssh.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "devices/probe.h"
#include "lease/acquire.h"
#include "lease/lease.h"

namespace berth {

struct RemoteJob {
  std::vector<std::string> hosts;   // on which it may run
  bool skip_unknown_hosts = false;  // of these, those that the harbour knows; else it must know all
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> flags;  // for `berth run` there
  std::vector<std::string> command;
};

// The exit code of a job that ran on another host; or the lease, if this host was first. `probe`
// may be missing: then this host will not do.
Result<std::variant<int, Lease>> run_remote_job(const AcquireRequest& request, const RemoteJob& job,
                                                Probe* probe);

}  // namespace berth
