// The base classes; see settle.h.
#include "python/src/settle.h"

#include <optional>
#include <utility>

namespace nb = nanobind;

namespace berth::python {
namespace {

struct Settled {};
struct Releasable : Settled {};

// Steps that are taken whatever is raised on the way; that is raised at the end.
class Steps {
 public:
  template <class Step>
  nb::object take(const Step& step) {
    constexpr int kTries = 3;
    for (int i = 1;; ++i) {
      try {
        return step();
      } catch (nb::python_error& error) {
        if (!first_) first_.emplace(std::move(error));
        if (i == kTries) throw nb::python_error(*first_);
      }
    }
  }
  void raise_first() const {
    if (first_) throw nb::python_error(*first_);
  }

 private:
  std::optional<nb::python_error> first_;
};

void leave(const nb::object& self, const nb::args& /*the exception, if there is one*/) {
  Steps steps;
  const nb::object entry = steps.take([&] { return self.attr("_entry")(); });
  steps.take([&] { return self.attr("_leave")(entry); });
  steps.raise_first();
}

nb::object release(const nb::object& self) {
  Steps steps;
  nb::object result = steps.take([&] { return self.attr("_release")(); });
  steps.raise_first();
  return result;
}

}  // namespace

void define_settled(nb::module_& module) {
  nb::class_<Settled>(module, "Settled").def(nb::init<>()).def("__exit__", &leave);
  nb::class_<Releasable, Settled>(module, "Releasable")
      .def(nb::init<>())
      .def("release", &release, "Gives the GPUs back.");
}

}  // namespace berth::python
