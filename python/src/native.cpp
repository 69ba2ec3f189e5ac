// berth._native: the C++ of berth for the Python package, which is the only one to call it.
//
// Thin on purpose: what a person calls, and what it means, is in python/berth/. Here stands what
// must not hold the interpreter: waiting, the driver, the harbour's lock.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/environment.h"
#include "base/file_trust.h"
#include "base/simulation.h"
#include "base/text.h"
#include "devices/driver.h"
#include "lease/attach.h"
#include "python/src/cuda.h"
#include "python/src/errors.h"
#include "python/src/interpreter.h"
#include "python/src/interrupt.h"
#include "python/src/interrupt_safe_context.h"
#include "python/src/lease.h"
#include "python/src/placeholder.h"
#include "python/src/request.h"
#include "python/src/watcher.h"
#include "status/status_json.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace berth::python {
namespace {

std::string status() {
  HarbourLocation where = harbour_location();
  const std::shared_ptr<Probe> probe = thread_probe();
  return value_or_raise([&] {
    const ScopedGilRelease gil_release;
    return observe_host(*probe, is_driver_simulated(), std::move(where))
        .map([](const Status& found) { return status_json(found, JsonForm::line); });
  }());
}

// The descriptor that keeps the lease alive, for its caller to close; nothing if there is no lease
// to join.
std::optional<int> attach(const std::string& id) {
  auto bell = value_or_raise([&] {
    HarbourLocation where = harbour_location();
    const ScopedGilRelease gil_release;
    return attach_to_lease(id, std::move(where));
  }());
  if (!bell) return std::nullopt;
  return make_inheritable(std::move(*bell));
}

// The file of the simulated server; nothing if the GPUs are real.
std::optional<std::string> simulated_state() {
  if (!is_driver_simulated()) return std::nullopt;
  return simulated_state_path();
}

// Variables of this process as text. As os.environ has them, which takes much longer to say that it
// has not. A value that is not UTF-8 has U+FFFD in it, and so equals nothing that berth has set.
nb::list get_variables(const std::vector<std::string>& names) {
  nb::list values;
  for (const std::string& name : names) {
    const auto value = get_env(name.c_str());
    if (!value) {
      values.append(nb::none());
    } else {
      values.append(nb::steal(
          PyUnicode_DecodeUTF8(value->data(), static_cast<Py_ssize_t>(value->size()), "replace")));
    }
  }
  return values;
}

}  // namespace
}  // namespace berth::python

NB_MODULE(_native, module) {
  using namespace berth::python;
  nb::set_leak_warnings(false);  // leases are kept until the process ends: they are no leak
  module.attr("__version__") = BERTH_VERSION;
  module.def("describe_trust_problem", &berth::describe_trust_problem, "own"_a, "path"_a);
  module.def("set_helper_program", &berth::set_helper_program, "path"_a);
  module.def("prefetch_snapshot", &prefetch_snapshot);
  module.def("status", &status);
  module.def("attach", &attach, "id"_a);
  module.def(
      "printable", [](const std::string& text) { return berth::printable(text); }, "text"_a);
  module.def("harbour_path", [] { return berth::harbour_location().path; });
  module.def("simulated_state_path", &simulated_state);
  module.def("getenv", &get_variables, "names"_a);
  module.def("cuda_is_started", &cuda_is_started);
  module.def("block_interpreter_reentry", &block_interpreter_reentry);
  module.def("archive_all", &archive_all, nb::call_guard<ScopedGilRelease>());
  module.def("pause_watching", &pause_watching);
  module.def("resume_watching", &resume_watching);
  define_interrupt(module);
  define_interrupt_safe_context(module);
  define_lease(module);
  define_placeholder(module);
}
