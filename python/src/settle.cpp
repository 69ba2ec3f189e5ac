// The base class; see settle.h.
#include "python/src/settle.h"

#include <optional>

namespace nb = nanobind;
using namespace nb::literals;

namespace berth::python {
namespace {

struct Settled {};
struct Releasable : Settled {};

nb::object settle(const nb::object& step) {
  std::optional<nb::python_error> first;
  for (;;) {
    try {
      nb::object result = step();
      if (first) throw nb::python_error(*first);
      return result;
    } catch (nb::python_error& error) {
      if (first) throw nb::python_error(*first);
      first.emplace(std::move(error));
    }
  }
}

}  // namespace

void define_settled(nb::module_& module) {
  nb::class_<Settled>(module, "Settled")
      .def(nb::init<>())
      .def("__exit__",
           [](const nb::object& self, const nb::args&) { settle(self.attr("_leave")); });
  nb::class_<Releasable, Settled>(module, "Releasable")
      .def(nb::init<>())
      .def(
          "release", [](const nb::object& self) { return settle(self.attr("_release")); },
          "Gives the GPUs back.");
}

}  // namespace berth::python
