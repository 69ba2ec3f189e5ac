// The choice of the driver; see driver.h.
#include "devices/driver.h"

#include <algorithm>
#include <fmt/format.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/own_files.h"
#include "base/process.h"
#include "base/text.h"
#include "devices/guarded_probe.h"

namespace berth {
namespace {

constexpr std::chrono::milliseconds kLongestLimit = std::chrono::hours(24);

std::string& chosen_program() {
  static std::string path;
  return path;
}

// The berth program whose installation is used.
std::string own_program() {
  return helper_program().empty() ? this_program() : helper_program();
}

// Of <prefix>/bin/berth: <prefix>.
std::string prefix_of(std::string program) {
  for (int i = 0; i < 2; ++i) program.erase(std::min(program.rfind('/'), program.size()));
  return program;
}

Result<std::unique_ptr<GuardedProbe>> make_probe() {
  GuardSettings settings;
  const auto limit = driver_time_limit();
  if (!limit) return tl::make_unexpected(limit.error());
  settings.limit = *limit;
  settings.program = helper_program();
  auto library = driver_library("libnvidia-ml.so.1");
  if (!library) return tl::make_unexpected(library.error());
  settings.library = std::move(*library);
  return std::make_unique<GuardedProbe>(std::move(settings));
}

// What prepare_driver() made, for the next open_driver().
std::unique_ptr<GuardedProbe>& prepared() {
  static std::unique_ptr<GuardedProbe> probe;
  return probe;
}

}  // namespace

void set_helper_program(std::string path) {
  chosen_program() = std::move(path);
}

const std::string& helper_program() {
  return chosen_program();
}

bool driver_is_simulated() {
  return !setting("BERTH_SIM").empty();
}

Result<std::string> driver_library(std::string_view file) {
  if (!driver_is_simulated()) return std::string(file);
  const std::string program = own_program();
  const std::string base = prefix_of(program);
  // The stand-in is in lib/berth/sim of an installation, and in lib/sim of a build tree.
  std::string path = fmt::format("{}/lib/berth/sim/{}", base, file);
  if (::access(path.c_str(), F_OK) != 0) path = fmt::format("{}/lib/sim/{}", base, file);
  if (::access(path.c_str(), R_OK) != 0) {
    return fail(ErrorKind::no_driver,
                fmt::format("BERTH_SIM is set, but the simulated driver is not where it should be "
                            "({}); install it beside berth, or unset BERTH_SIM",
                            in_quotes(path)));
  }
  if (const auto reason = why_not_own(program, path)) {
    return fail(ErrorKind::no_driver,
                fmt::format("BERTH_SIM is set, but the simulated driver beside berth is not used: "
                            "{}; install berth in a folder that only its owner can change, or "
                            "unset BERTH_SIM",
                            *reason));
  }
  return path;
}

Result<std::chrono::milliseconds> driver_time_limit() {
  const auto text = setting("BERTH_DRIVER_TIMEOUT");
  if (text.empty()) return GuardSettings{}.limit;
  const auto time = parse_duration(text);
  if (!time) {
    return fail(ErrorKind::usage, fmt::format("BERTH_DRIVER_TIMEOUT: {}", time.error().message));
  }
  const auto limit = std::min(std::chrono::ceil<std::chrono::milliseconds>(*time), kLongestLimit);
  if (limit <= limit.zero()) {
    return fail(ErrorKind::usage, "BERTH_DRIVER_TIMEOUT: it must be longer than 0, such as 20s");
  }
  return limit;
}

void prepare_driver() {
  if (auto probe = make_probe()) {
    (*probe)->prepare();
    prepared() = std::move(*probe);
  }  // else open_driver() will say why
}

Result<std::unique_ptr<Probe>> open_driver(std::function<void()> on_slow) {
  std::unique_ptr<GuardedProbe> probe = std::move(prepared());
  if (!probe) {
    auto made = make_probe();
    if (!made) return tl::make_unexpected(made.error());
    probe = std::move(*made);
  }
  probe->when_slow(std::move(on_slow));
  return probe;
}

}  // namespace berth
