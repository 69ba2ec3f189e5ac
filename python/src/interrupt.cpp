// The pipe; see interrupt.h.
#include "python/src/interrupt.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "python/src/errors.h"

namespace nb = nanobind;

namespace berth::python {

Interrupt::Interrupt() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    raise({ErrorKind::harbour, fmt::format("no descriptor is left to wait with: {}; see ulimit -n",
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

void define_interrupt(nb::module_& module) {
  nb::class_<Interrupt>(module, "Interrupt")
      .def(nb::init<>())
      .def("wakeup_fd", &Interrupt::writing)
      .def("leave", &Interrupt::leave)
      .def("seen", [](Interrupt& interrupt) {
        const std::string seen = interrupt.seen();
        return nb::bytes(seen.data(), seen.size());
      });
}

}  // namespace berth::python
