// The interface through which Berth reads the state of this host's GPUs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "devices/gpu.h"

namespace berth {

// Not thread-safe. Calls may take long (a driver that starts), but every implementation has a time
// limit and then returns an error. A GPU that fails is reported inside the snapshot; an error
// (ErrorKind::no_driver, or usage if a setting is wrong) means that no GPU can be read at all.
class Probe {
 public:
  virtual ~Probe() = default;
  virtual Result<Snapshot> snapshot() = 0;
  virtual Result<Topology> topology() = 0;
  // The use of these GPUs, in their order. For a GPU that the driver no longer has, the sample
  // contains only the UUID.
  virtual Result<std::vector<GpuSample>> sample(const std::vector<std::string>& uuids) = 0;

  // A hint that snapshot() follows soon: the driver may begin with it now. That snapshot() may
  // return the state at the time of this call, or a newer one.
  virtual void prefetch_snapshot() {}
  // Lets the caller end a slow query with an error: when `fd` is readable, and `confirm_interrupt`
  // (which reads from it), if there is one, returns true. -1: queries are not interrupted.
  virtual void set_interrupt(int /*fd*/, const std::function<bool()>& /*confirm_interrupt*/ = {}) {}
  // A hint that no query follows for a long time: the session may be closed to free its resources.
  virtual void close_session() {}
  // Ends a query that has not been answered. Afterwards no process of the probe holds descriptors
  // of this process, such as the bell of a lease.
  virtual void abandon_query() {}

 protected:
  Probe() = default;
  Probe(const Probe&) = default;
  Probe& operator=(const Probe&) = default;
  Probe(Probe&&) = default;
  Probe& operator=(Probe&&) = default;
};

}  // namespace berth
