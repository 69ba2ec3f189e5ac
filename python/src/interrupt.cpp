// The pipe; see interrupt.h.
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
    raise({ErrorKind::io, fmt::format("no descriptor is left to wait with: {}; see ulimit -n",
                                           std::strerror(errno))});
  }
  reading_ = UniqueFd(ends[0]);
  writing_ = UniqueFd(ends[1]);
}

void Interrupt::leave() {
  leaving_ = true;
  wake();
}

void Interrupt::wake() {
  const char byte = 0;
  (void)!::write(writing_.get(), &byte, 1);
}

void Interrupt::take() {
  std::array<char, 256> bytes{};
  for (ssize_t got = 1; got > 0;) {
    got = ::read(reading_.get(), bytes.data(), bytes.size());
    for (ssize_t i = 0; i < got; ++i) {
      const char number = bytes.at(static_cast<std::size_t>(i));
      if (number != 0) seen_.push_back(number);  // 0: our own
    }
  }
}

std::string Interrupt::seen() {
  take();
  return std::exchange(seen_, {});
}

bool Interrupt::leaves() {
  take();
  return leaving_ || PyErr_CheckSignals() != 0;
}

Interrupt& own_interrupt() {
  thread_local std::optional<Interrupt> own;
  thread_local pid_t owner = 0;
  if (!own || owner != ::getpid()) {
    own.emplace();
    owner = ::getpid();
  }
  return *own;
}

namespace {

// signal.set_wakeup_fd(): the descriptor before it. Python has no such function for C.
int exchange_wakeup(int fd) {
  static const auto* const call =
      new nb::object(nb::module_::import_("_signal").attr("set_wakeup_fd"));
  return nb::cast<int>((*call)(fd, nb::arg("warn_on_full_buffer") = false));
}

}  // namespace

SignalsWake::SignalsWake(Interrupt& interrupt)
    : interrupt_(interrupt), main_thread_(::gettid() == ::getpid()) {
  if (!main_thread_) return;
  try {
    before_ = exchange_wakeup(interrupt.writing());
  } catch (nb::python_error&) {
    main_thread_ = false;  // a subinterpreter's
  }
}

SignalsWake::~SignalsWake() {
  if (!main_thread_) return;
  try {
    exchange_wakeup(before_);
  } catch (nb::python_error& error) {  // somebody has closed the one before
    error.discard_as_unraisable("berth");
    return;
  }
  if (before_ < 0) return;
  const std::string seen = interrupt_.seen();
  (void)!::write(before_, seen.data(), seen.size());
}

void define_interrupt(nb::module_& module) {
  nb::class_<Interrupt>(module, "Interrupt").def(nb::init<>()).def("leave", &Interrupt::leave);
}

}  // namespace berth::python
