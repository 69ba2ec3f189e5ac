// The binding; see placeholder.h.
#include "devices/placeholder.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/errors.h"
#include "python/src/interpreter.h"
#include "python/src/placeholder.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace berth::python {

void define_placeholder(nb::module_& module) {
  nb::class_<Placeholders>(module, "Placeholders")
      .def("pids", &Placeholders::pids)
      .def("release", &Placeholders::stop, nb::call_guard<ScopedGilRelease>());
  module.def(
      "start_placeholders",
      [](const std::vector<std::string>& uuids) {
        return value_or_raise([&] {
          const ScopedGilRelease gil_release;
          return Placeholders::start(uuids);
        }());
      },
      "uuids"_a);
}

}  // namespace berth::python
