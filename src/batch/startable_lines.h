// Finds the lines of a batch that would be granted GPUs at once, according to their profiles.
//
// Only a few lines of a batch wait in the queue, so that other users get their turn. The scheduler
// can fill gaps only with tickets in the queue. So the batch itself checks which of its other lines
// would fit.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "devices/probe.h"
#include "lease/acquire.h"

namespace berth::batch {

// What to do while the driver is slow.
struct SlowDriver {
  std::function<void()> on_slow;  // called when the driver does not answer soon
  int interrupt = -1;             // the call of the driver ends when this descriptor is readable
};

// Used by one thread.
class StartableLines {
 public:
  // `acquire_request` is the request of every line, without memory and run time. `types` has the
  // job type of each line, and must outlive this object.
  StartableLines(AcquireRequest acquire_request, const std::vector<std::string>& types,
                 SlowDriver slow);

  // Those of `lines` that would be granted if they entered the queue now, in this order. Empty if
  // the driver or the harbour cannot be read: the lines then wait in the queue.
  std::vector<std::size_t> find_startable(const std::vector<std::size_t>& lines);

 private:
  const Request& request_for_type(const std::string& type, const std::vector<Gpu>& gpus);

  AcquireRequest acquire_request_;
  const std::vector<std::string>& types_;
  SlowDriver slow_;
  std::unique_ptr<Probe> probe_;
  bool restricted_ = false;                  // acquire_request_ is limited to the allowed GPUs
  std::map<std::string, Request> requests_;  // by type; filled anew by each call
};

}  // namespace berth::batch
