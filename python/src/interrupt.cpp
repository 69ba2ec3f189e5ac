// The pipe that wakes a waiting thread; see interrupt.h.
#include "python/src/interrupt.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <unistd.h>

#include "python/src/errors.h"

namespace nb = nanobind;

namespace berth::python {

Interrupt::Interrupt() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    raise_error({ErrorKind::io, fmt::format("cannot open a pipe to wait with: {}; check ulimit -n",
                                            std::strerror(errno))});
  }
  read_end_ = UniqueFd(ends[0]);
  write_end_ = UniqueFd(ends[1]);
}

void Interrupt::cancel() {
  cancelled_ = true;
  wake();
}

void Interrupt::wake() {
  const char byte = 0;
  (void)!::write(write_end_.get(), &byte, 1);
}

void Interrupt::drain_pipe() {
  std::array<char, 256> bytes{};
  for (ssize_t count = 1; count > 0;) {
    count = ::read(read_end_.get(), bytes.data(), bytes.size());
    for (ssize_t i = 0; i < count; ++i) {
      const char number = bytes.at(static_cast<std::size_t>(i));
      if (number != 0) signals_.push_back(number);  // 0: written by wake()
    }
  }
}

std::string Interrupt::take_signals() {
  drain_pipe();
  return std::exchange(signals_, {});
}

bool Interrupt::check_cancelled() {
  drain_pipe();
  return cancelled_ || PyErr_CheckSignals() != 0;
}

Interrupt& thread_interrupt() {
  thread_local std::optional<Interrupt> interrupt;
  thread_local pid_t owner = 0;
  if (!interrupt || owner != ::getpid()) {
    interrupt.emplace();
    owner = ::getpid();
  }
  return *interrupt;
}

namespace {

// Calls signal.set_wakeup_fd(), which is not in Python's C API. Returns the previous descriptor.
int exchange_wakeup_fd(int fd) {
  static const auto* const call =
      new nb::object(nb::module_::import_("_signal").attr("set_wakeup_fd"));
  return nb::cast<int>((*call)(fd, nb::arg("warn_on_full_buffer") = false));
}

}  // namespace

SignalWakeup::SignalWakeup(Interrupt& interrupt)
    : interrupt_(interrupt), main_thread_(::gettid() == ::getpid()) {
  if (!main_thread_) return;
  try {
    previous_fd_ = exchange_wakeup_fd(interrupt.write_fd());
  } catch (nb::python_error&) {
    main_thread_ = false;  // the main thread of a subinterpreter
  }
}

SignalWakeup::~SignalWakeup() {
  if (!main_thread_) return;
  try {
    exchange_wakeup_fd(previous_fd_);
  } catch (nb::python_error& error) {  // the previous descriptor was closed
    error.discard_as_unraisable("berth");
    return;
  }
  if (previous_fd_ < 0) return;
  const std::string signals = interrupt_.take_signals();
  (void)!::write(previous_fd_, signals.data(), signals.size());
}

void define_interrupt(nb::module_& module) {
  nb::class_<Interrupt>(module, "Interrupt").def(nb::init<>()).def("cancel", &Interrupt::cancel);
}

}  // namespace berth::python
