// Requests and driver probes of Python threads; see request.h.
#include "python/src/request.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "devices/driver.h"
#include "lease/request_options.h"
#include "profile/job_type.h"
#include "python/src/errors.h"

namespace berth::python {
namespace {

struct ThreadProbe {
  std::string settings_key;  // driver_settings_key() when the probe was opened
  std::shared_ptr<Probe> probe;
};

thread_local std::vector<ThreadProbe> thread_probes;  // more than one after nested calls
thread_local std::function<void(const std::string&)> slow_driver_callback;

// A probe that is not in use.
std::vector<ThreadProbe>::iterator find_idle_probe() {
  return std::find_if(thread_probes.begin(), thread_probes.end(),
                      [](const ThreadProbe& one) { return one.probe.use_count() == 1; });
}

}  // namespace

// The variables that a helper process reads when it starts, and its program.
std::string driver_settings_key() {
  std::string key;
  for (const char* name :
       {"BERTH_SIM", "BERTH_SIM_STATE", "BERTH_DRIVER_TIMEOUT", "LD_LIBRARY_PATH"}) {
    key += fmt::format("{}\n", get_env_or_empty(name));
  }
  return key + helper_program();
}

void prefetch_snapshot() {
  if (const auto idle = find_idle_probe();
      idle != thread_probes.end() && idle->settings_key == driver_settings_key()) {
    idle->probe->prefetch_snapshot();
  }
}

std::shared_ptr<Probe> thread_probe() {
  std::string key = driver_settings_key();
  const auto idle = find_idle_probe();
  if (idle != thread_probes.end() && idle->settings_key == key) return idle->probe;
  std::shared_ptr<Probe> probe = value_or_raise(open_driver([] {
    if (slow_driver_callback) slow_driver_callback("waiting for the driver to answer");
  }));
  if (idle != thread_probes.end()) thread_probes.erase(idle);
  thread_probes.push_back({std::move(key), probe});
  return probe;
}

SlowDriverNotice::SlowDriverNotice(std::function<void(const std::string&)> notice)
    : previous_callback_(std::exchange(slow_driver_callback, std::move(notice))) {}

SlowDriverNotice::~SlowDriverNotice() {
  slow_driver_callback = std::move(previous_callback_);
}

AcquireRequest make_python_request(const std::map<std::string, std::string>& values, bool no_wait,
                                   std::optional<std::string> visible_devices,
                                   std::string parent_lease) {
  const RequestOptions options = value_or_raise(parse_request_keywords(values, no_wait));
  AcquireRequest request = make_acquire_request(options);
  if (!options.job.empty()) {
    const JobType type = make_named_job_type(options.job, request.gpu_request.count);
    request.profile_options = ProfileOptions{type.name, options.auto_memory, !options.request.time};
  }
  request.argument_style = ArgumentStyle::keywords;
  request.visible_devices = std::move(visible_devices);
  request.parent_lease = std::move(parent_lease);
  return request;
}

}  // namespace berth::python
