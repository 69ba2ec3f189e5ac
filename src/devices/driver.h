// Which driver berth talks to, decided by the environment: the real one, or the simulated one.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "devices/probe.h"

namespace berth {

// For a library in another program's process: the berth program that it belongs to. What calls a
// driver runs in that one, and the simulated driver is the one of its installation. Call it before
// anything else here, from one thread.
void set_helper_program(std::string path);

// That program; empty if this process is berth itself.
const std::string& helper_program();

// BERTH_SIM is set: the GPUs are not real, and everything that shows them must say so.
bool is_driver_simulated();

// What to give to dlopen() for a library of the driver such as libcuda.so.1: its name, or the path
// of the stand-in in the installation of this program. The error (ErrorKind::no_driver) says that
// the stand-in is missing, or that another user could have put it there.
Result<std::string> find_driver_library(std::string_view file);

// How long a driver may take to answer: BERTH_DRIVER_TIMEOUT, or a usual time. The error is
// ErrorKind::usage.
Result<std::chrono::milliseconds> read_driver_timeout();

// Begins to ask the driver for a snapshot, in a process of its own, ahead of the open_driver() to
// come: what else there is to do when a program starts is done meanwhile.
void prefetch_driver_snapshot();

// A probe for this host's driver; nothing is loaded before its first question. BERTH_SIM chooses
// the simulated driver that lies beside this program, BERTH_DRIVER_TIMEOUT the time limit.
// `on_slow` is called when a question takes long. Errors: a setting that cannot be used
// (ErrorKind::usage), or no simulated driver where it should be (no_driver).
Result<std::unique_ptr<Probe>> open_driver(std::function<void()> on_slow = nullptr);

}  // namespace berth
