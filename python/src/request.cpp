// Probes and asks of Python's threads; see request.h.
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

struct OwnProbe {
  std::string chosen;  // by what the environment said then
  std::shared_ptr<Probe> probe;
};

thread_local std::vector<OwnProbe> own;  // more than one where calls were inside of calls
thread_local std::function<void(const std::string&)> on_slow;

// One that no call uses now.
std::vector<OwnProbe>::iterator find_idle() {
  return std::find_if(own.begin(), own.end(),
                      [](const OwnProbe& one) { return one.probe.use_count() == 1; });
}

}  // namespace

// What a helper takes over from its parent's environment when it starts.
std::string driver_choice() {
  std::string choice;
  for (const char* name :
       {"BERTH_SIM", "BERTH_SIM_STATE", "BERTH_DRIVER_TIMEOUT", "LD_LIBRARY_PATH"}) {
    choice += fmt::format("{}\n", setting(name));
  }
  return choice + helper_program();
}

void prepare_own_probe() {
  if (const auto idle = find_idle(); idle != own.end() && idle->chosen == driver_choice()) {
    idle->probe->prepare();
  }
}

std::shared_ptr<Probe> own_probe() {
  std::string choice = driver_choice();
  const auto idle = find_idle();
  if (idle != own.end() && idle->chosen == choice) return idle->probe;
  std::shared_ptr<Probe> made = unless_error(open_driver([] {
    if (on_slow) on_slow("waiting for the driver to answer");
  }));
  if (idle != own.end()) own.erase(idle);
  own.push_back({std::move(choice), made});
  return made;
}

SlowDriverNotice::SlowDriverNotice(std::function<void(const std::string&)> notice)
    : before_(std::exchange(on_slow, std::move(notice))) {}

SlowDriverNotice::~SlowDriverNotice() {
  on_slow = std::move(before_);
}

AcquireRequest make_python_ask(const std::map<std::string, std::string>& values, bool no_wait,
                    std::optional<std::string> visible_devices, std::string within) {
  const RequestOptions options = unless_error(read_request(values, no_wait));
  AcquireRequest ask = make_acquire_request(options);
  if (!options.job.empty()) {
    const JobType type = named_type(options.job, ask.request.count);
    ask.learning = Learning{type.name, options.learned, !options.request.time};
  }
  ask.spelling = ArgumentStyle::keywords;
  ask.visible_devices = std::move(visible_devices);
  ask.within = std::move(within);
  return ask;
}

}  // namespace berth::python
