// Selects the driver by the environment: the host's own, or the simulated one (BERTH_SIM).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "devices/probe.h"

namespace berth {

// Sets the path of the berth program, for a library in the process of another program (Python).
// Helper processes, which call the driver, then run that program, and its installation contains the
// simulated driver. Call it before the other functions of this file, from one thread.
void set_helper_program(std::string path);

// The path that was set; empty if this process is the berth program itself.
const std::string& helper_program();

// Whether BERTH_SIM is set: the GPUs are not real, and all output that shows them must say so.
bool is_driver_simulated();

// The name or path for dlopen() of a library of the driver such as libcuda.so.1: its name, or with
// BERTH_SIM the path of the simulated one in the installation of this program.
// ErrorKind::no_driver: the simulated driver is missing, or another user could have put it there.
Result<std::string> find_driver_library(std::string_view file);

// The time within which the driver must answer: BERTH_DRIVER_TIMEOUT, or a default. Errors are
// ErrorKind::usage.
Result<std::chrono::milliseconds> read_driver_timeout();

// Starts a helper process that reads a snapshot for the next open_driver(), while this process does
// the rest of its startup. open_driver() reports the errors.
void prefetch_driver_snapshot();

// A probe for the selected driver. No library is loaded before the first query. The probe calls
// `on_slow` when a query takes long. ErrorKind::usage: BERTH_DRIVER_TIMEOUT is wrong. no_driver:
// the simulated driver cannot be used.
Result<std::unique_ptr<Probe>> open_driver(std::function<void()> on_slow = nullptr);

}  // namespace berth
