// Requests of Python programs, and the driver probes of their threads.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nanobind/nanobind.h>
#include <optional>
#include <string>

#include "devices/probe.h"
#include "lease/acquire.h"

namespace berth::python {

// The probe of this thread, for the driver that the environment selects now. Each thread has its
// own, since the helper process of a probe ends with the thread that started it. The caller holds
// the pointer while it uses the probe: a callback or signal handler that calls berth meanwhile gets
// another probe. Raises; needs the GIL.
std::shared_ptr<Probe> thread_probe();

// The settings in the environment that select the driver; they may change between two requests.
std::string driver_settings_key();

// If this thread has an idle probe, it begins to query the driver ahead of the next request.
void prefetch_snapshot();

// For its lifetime, `notice` is called when the driver of this thread is slow.
class SlowDriverNotice {
 public:
  explicit SlowDriverNotice(std::function<void(const std::string&)> notice);
  ~SlowDriverNotice();
  SlowDriverNotice(const SlowDriverNotice&) = delete;
  SlowDriverNotice& operator=(const SlowDriverNotice&) = delete;

 private:
  std::function<void(const std::string&)> previous_callback_;
};

// A request from the keywords of the Python package (each value as text) and the environment of the
// caller: `visible_devices` and `parent_lease` as in AcquireRequest. Raises.
AcquireRequest make_python_request(const std::map<std::string, std::string>& values, bool no_wait,
                                   std::optional<std::string> visible_devices,
                                   std::string parent_lease);

}  // namespace berth::python
