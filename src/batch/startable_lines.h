// Which lines of a batch would be granted GPUs at once, by what was learned of them.
//
// Only few lines wait in the queue, so that others have their turn. The scheduler can fill gaps
// only with what waits there: so the batch looks itself which of its lines would fit.
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

// While a driver is asked that takes long.
struct SlowDriver {
  std::function<void()> on_slow;  // that it does
  int interrupt = -1;             // when this can be read, it is not waited for any more
};

class StartableLines {
 public:
  // What every line asks for, but for its memory and run time; and the type of each line.
  StartableLines(AcquireRequest acquire_request, const std::vector<std::string>& types,
                 SlowDriver slow);

  // Of `lines`, asked for in this order behind the queue as it is now, those that would be granted.
  // None where that cannot be found out: then they take their places in the queue.
  std::vector<std::size_t> find_startable(const std::vector<std::size_t>& lines);

 private:
  const Request& request_for_type(const std::string& type, const std::vector<Gpu>& gpus);

  AcquireRequest acquire_request_;
  const std::vector<std::string>& types_;
  SlowDriver slow_;
  std::unique_ptr<Probe> probe_;
  bool restricted_ = false;
  std::map<std::string, Request> requests_;  // of this look
};

}  // namespace berth::batch
