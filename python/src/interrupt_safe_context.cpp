// InterruptSafeContext and Releasable; see interrupt_safe_context.h.
#include "python/src/interrupt_safe_context.h"

#include <optional>
#include <utility>

namespace nb = nanobind;

namespace berth::python {
namespace {

struct InterruptSafeContext {};
struct Releasable : InterruptSafeContext {};

// Runs steps again if they raise, up to three times each. The first exception is raised at the end.
class RetriedSteps {
 public:
  template <class Step>
  nb::object run(const Step& step) {
    constexpr int kMaxAttempts = 3;
    for (int i = 1;; ++i) {
      try {
        return step();
      } catch (nb::python_error& error) {
        if (!first_error_) first_error_.emplace(std::move(error));
        if (i == kMaxAttempts) throw nb::python_error(*first_error_);
      }
    }
  }
  void raise_first() const {
    if (first_error_) throw nb::python_error(*first_error_);
  }

 private:
  std::optional<nb::python_error> first_error_;
};

void exit_context(const nb::object& self, const nb::args& /*exception*/) {
  RetriedSteps steps;
  const nb::object entry = steps.run([&] { return self.attr("_current_entry")(); });
  steps.run([&] { return self.attr("_exit_entry")(entry); });
  steps.raise_first();
}

nb::object release(const nb::object& self) {
  RetriedSteps steps;
  nb::object result = steps.run([&] { return self.attr("_release")(); });
  steps.raise_first();
  return result;
}

}  // namespace

void define_interrupt_safe_context(nb::module_& module) {
  nb::class_<InterruptSafeContext>(module, "InterruptSafeContext")
      .def(nb::init<>())
      .def("__exit__", &exit_context);
  nb::class_<Releasable, InterruptSafeContext>(module, "Releasable")
      .def(nb::init<>())
      .def("release", &release, "Releases the GPUs.");
}

}  // namespace berth::python
