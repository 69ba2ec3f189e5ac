// Selects the driver by the environment; see driver.h.
#include "devices/driver.h"

#include <algorithm>
#include <fmt/format.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/file_trust.h"
#include "base/process.h"
#include "base/text.h"
#include "devices/guarded_probe.h"

namespace berth {
namespace {

constexpr std::chrono::milliseconds kMaxDriverTimeout = std::chrono::hours(24);

std::string& helper_program_path() {
  static std::string path;
  return path;
}

// The path of the berth program whose installation contains the simulated driver.
std::string berth_program() {
  return helper_program().empty() ? executable_path() : helper_program();
}

// For <prefix>/bin/berth: <prefix>.
std::string install_prefix(std::string program) {
  for (int i = 0; i < 2; ++i) program.erase(std::min(program.rfind('/'), program.size()));
  return program;
}

Result<std::unique_ptr<GuardedProbe>> make_probe() {
  GuardedProbeSettings settings;
  settings.timeout = TRY(read_driver_timeout());
  settings.program = helper_program();
  settings.library = TRY(find_driver_library("libnvidia-ml.so.1"));
  return std::make_unique<GuardedProbe>(std::move(settings));
}

// The probe that prefetch_driver_snapshot() made for the next open_driver().
std::unique_ptr<GuardedProbe>& prefetched_probe() {
  static std::unique_ptr<GuardedProbe> probe;
  return probe;
}

}  // namespace

void set_helper_program(std::string path) {
  helper_program_path() = std::move(path);
}

const std::string& helper_program() {
  return helper_program_path();
}

bool is_driver_simulated() {
  return !get_env_or_empty("BERTH_SIM").empty();
}

Result<std::string> find_driver_library(std::string_view file) {
  if (!is_driver_simulated()) return std::string(file);
  const std::string program = berth_program();
  const std::string prefix = install_prefix(program);
  // The simulated driver is in lib/berth/sim of an installation, and in lib/sim of a build tree.
  std::string path = fmt::format("{}/lib/berth/sim/{}", prefix, file);
  if (::access(path.c_str(), F_OK) != 0) path = fmt::format("{}/lib/sim/{}", prefix, file);
  if (::access(path.c_str(), R_OK) != 0) {
    return fail(
        ErrorKind::no_driver,
        fmt::format("BERTH_SIM is set, but the simulated driver {} cannot be read; install it "
                    "with berth, or unset BERTH_SIM",
                    in_quotes(path)));
  }
  if (const auto reason = describe_trust_problem(program, path)) {
    return fail(ErrorKind::no_driver,
                fmt::format("BERTH_SIM is set, but the simulated driver beside berth is not used: "
                            "{}; install berth in a folder that only its owner can change, or "
                            "unset BERTH_SIM",
                            *reason));
  }
  return path;
}

Result<std::chrono::milliseconds> read_driver_timeout() {
  const auto text = get_env_or_empty("BERTH_DRIVER_TIMEOUT");
  if (text.empty()) return GuardedProbeSettings{}.timeout;
  const auto time = parse_duration(text);
  if (!time) {
    return fail(ErrorKind::usage, fmt::format("BERTH_DRIVER_TIMEOUT: {}", time.error().message));
  }
  const auto timeout =
      std::min(std::chrono::ceil<std::chrono::milliseconds>(*time), kMaxDriverTimeout);
  if (timeout <= timeout.zero()) {
    return fail(ErrorKind::usage, "BERTH_DRIVER_TIMEOUT is 0; write a duration such as 20s");
  }
  return timeout;
}

void prefetch_driver_snapshot() {
  if (auto probe = make_probe()) {
    (*probe)->prefetch_snapshot();
    prefetched_probe() = std::move(*probe);
  }  // open_driver() reports an error of make_probe()
}

Result<std::unique_ptr<Probe>> open_driver(std::function<void()> on_slow) {
  std::unique_ptr<GuardedProbe> probe = std::move(prefetched_probe());
  if (!probe) probe = TRY(make_probe());
  probe->set_on_slow(std::move(on_slow));
  return probe;
}

}  // namespace berth
