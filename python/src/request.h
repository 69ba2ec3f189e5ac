// A request as Python writes it, and the driver that is asked about it.
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

// This thread's probe, for the driver that the environment chooses at this moment. One for each
// thread: a probe's helper ends with the thread that started it. Keep it while it is used: a
// callback or a signal's handler may ask berth again, and then gets another. Raises; needs the
// interpreter.
std::shared_ptr<Probe> thread_probe();

// What the environment says of the driver to ask: it may change between two requests.
std::string driver_settings_key();

// If there is one already, it may ask the driver while the caller makes up its mind.
void prefetch_snapshot();

// `notice` is told when the driver of this thread is slow, until this ends.
class SlowDriverNotice {
 public:
  explicit SlowDriverNotice(std::function<void(const std::string&)> notice);
  ~SlowDriverNotice();
  SlowDriverNotice(const SlowDriverNotice&) = delete;
  SlowDriverNotice& operator=(const SlowDriverNotice&) = delete;

 private:
  std::function<void(const std::string&)> previous_callback_;
};

// What to ask for, by the keywords of the package (each value as text) and by what surrounds the
// caller: `visible_devices` and `parent_lease` as in Ask. Raises.
AcquireRequest make_python_request(const std::map<std::string, std::string>& values, bool no_wait,
                                   std::optional<std::string> visible_devices,
                                   std::string parent_lease);

}  // namespace berth::python
