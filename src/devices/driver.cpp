// The choice of the driver; see driver.h.
#include "devices/driver.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <unistd.h>

#include "base/environment.h"
#include "base/text.h"
#include "devices/guarded_probe.h"

namespace berth {
namespace {

constexpr const char* kNvml = "libnvidia-ml.so.1";
constexpr std::chrono::milliseconds kLongestLimit = std::chrono::hours(24);

// The folder above the one this program is in: <prefix> of <prefix>/bin/berth.
std::string prefix() {
  std::array<char, 4096> path{};
  const auto length = ::readlink("/proc/self/exe", path.data(), path.size());
  std::string_view exe(path.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  for (int i = 0; i < 2; ++i) exe = exe.substr(0, exe.rfind('/'));
  return std::string(exe);
}

// The stand-in lies in lib/sim of a build tree, and in lib/berth/sim of an installation.
std::string simulated_library() {
  const std::string base = prefix();
  std::string installed = fmt::format("{}/lib/berth/sim/{}", base, kNvml);
  if (::access(installed.c_str(), F_OK) == 0) return installed;
  return fmt::format("{}/lib/sim/{}", base, kNvml);
}

}  // namespace

bool driver_is_simulated() {
  return !setting("BERTH_SIM").empty();
}

Result<std::unique_ptr<Probe>> open_driver(std::function<void()> on_slow) {
  GuardSettings settings;
  settings.on_slow = std::move(on_slow);
  if (const auto limit = setting("BERTH_DRIVER_TIMEOUT"); !limit.empty()) {
    const auto time = parse_duration(limit);
    if (!time) {
      return fail(ErrorKind::usage, fmt::format("BERTH_DRIVER_TIMEOUT: {}", time.error().message));
    }
    settings.limit = std::min(std::chrono::ceil<std::chrono::milliseconds>(*time), kLongestLimit);
    if (settings.limit <= settings.limit.zero()) {
      return fail(ErrorKind::usage, "BERTH_DRIVER_TIMEOUT: it must be longer than 0, such as 20s");
    }
  }
  settings.library = driver_is_simulated() ? simulated_library() : kNvml;
  if (driver_is_simulated() && ::access(settings.library.c_str(), R_OK) != 0) {
    return fail(ErrorKind::no_driver,
                fmt::format("BERTH_SIM is set, but the simulated driver is not where it should be "
                            "({}); install it beside berth, or unset BERTH_SIM",
                            in_quotes(settings.library)));
  }
  return std::make_unique<GuardedProbe>(std::move(settings));
}

}  // namespace berth
