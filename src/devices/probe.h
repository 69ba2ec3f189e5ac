// The seam between berth and the drivers: who can say what the GPUs of this host are doing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "devices/gpu.h"

namespace berth {

// Not safe for several threads at once. Calls may take long (a driver that starts), but not for
// ever: an implementation gives up and says so. A GPU that fails is reported inside the snapshot;
// an Error (ErrorKind::no_driver, or usage where the user's own setting is wrong) means that no GPU
// can be seen at all.
class Probe {
 public:
  virtual ~Probe() = default;
  virtual Result<Snapshot> snapshot() = 0;
  virtual Result<Topology> topology() = 0;
  // Of these GPUs alone, in their order. Of one that the driver does not know any more: nothing but
  // its UUID.
  virtual Result<std::vector<GpuSample>> sample(const std::vector<std::string>& uuids) = 0;

  // A snapshot will be wanted at once: the driver may begin. That snapshot may be as old as this
  // call, or asked for anew.
  virtual void prefetch_snapshot() {}
  // A question that takes long ends, with an Error, when this descriptor can be read and
  // `confirm_interrupt` (which takes what is there), if there is one, says so; -1: none does.
  virtual void set_interrupt(int /*fd*/, const std::function<bool()>& /*confirm_interrupt*/ = {}) {}
  // Nothing will be wanted for long: what a session costs can be given back.
  virtual void close_session() {}

 protected:
  Probe() = default;
  Probe(const Probe&) = default;
  Probe& operator=(const Probe&) = default;
  Probe(Probe&&) = default;
  Probe& operator=(Probe&&) = default;
};

}  // namespace berth
