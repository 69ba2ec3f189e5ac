// The extension module berth._native, which only the Python package berth uses.
//
// It is thin on purpose: the public interface is in python/berth/. The C++ part does what must not
// hold the GIL: waiting, driver calls, and the harbour's lock.
#include <csignal>
#include <dlfcn.h>
#include <link.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <string_view>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/file_trust.h"
#include "base/process.h"
#include "base/simulation.h"
#include "base/suggestion.h"
#include "base/text.h"
#include "devices/driver.h"
#include "devices/placeholder.h"
#include "lease/gpu_list.h"
#include "lease/lease.h"
#include "lease/request_options.h"
#include "python/src/errors.h"
#include "python/src/interpreter.h"
#include "python/src/interrupt.h"
#include "python/src/interrupt_safe_context.h"
#include "python/src/lease.h"
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

// The UUIDs of the GPUs that a list such as "0-3" names. Raises what a request with this list
// would.
std::vector<std::string> select_named_gpus(const std::string& list) {
  const std::shared_ptr<Probe> probe = thread_probe();
  return value_or_raise([&]() -> Result<std::vector<std::string>> {
    const ScopedGilRelease gil_release;
    const Snapshot snapshot = TRY(probe->snapshot());
    return select_gpus(snapshot.gpus, list);
  }());
}

// A descriptor that keeps the lease alive, which the caller must close; nullopt if the lease does
// not exist.
std::optional<int> attach(const std::string& id) {
  auto bell = value_or_raise([&] {
    HarbourLocation where = harbour_location();
    const ScopedGilRelease gil_release;
    return attach_to_lease(id, std::move(where));
  }());
  if (!bell) return std::nullopt;
  return make_inheritable(std::move(*bell));
}

// The file of the simulated server; nullopt if the GPUs are real.
std::optional<std::string> simulated_state() {
  if (!is_driver_simulated()) return std::nullopt;
  return simulated_state_path();
}

// Environment variables of this process. The same as os.environ, which takes much longer for a
// variable that is not set. In a value that is not UTF-8, U+FFFD replaces the wrong bytes, so it
// never equals a value that berth has set.
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

// Checks the libraries that are loaded. dlopen() would search the file system for one that is not.
bool is_cuda_loaded() {
  return ::dl_iterate_phdr(
             [](dl_phdr_info* info, std::size_t, void*) {
               const std::string_view path = info->dlpi_name;
               return path.find("libcuda.so") != std::string_view::npos ? 1 : 0;
             },
             nullptr) != 0;
}

// Whether cuInit() was called in this process. CUDA reads CUDA_VISIBLE_DEVICES then, and a later
// choice of GPUs has no effect. Loads nothing.
bool cuda_is_started() {
  constexpr int kNotInitialized = 3;  // CUDA_ERROR_NOT_INITIALIZED
  if (!is_cuda_loaded()) return false;
  void* library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  // This call returns at once, whatever the state of the driver, and changes nothing.
  auto* count = reinterpret_cast<int (*)(int*)>(::dlsym(library, "cuDeviceGetCount"));
  int devices = 0;
  const bool started = count != nullptr && count(&devices) != kNotInitialized;
  ::dlclose(library);
  return started;
}

// Raises UsageError if a value is wrong, before anything is started with the request.
void check_request(const std::map<std::string, std::string>& values, bool no_wait) {
  value_or_raise(parse_request_keywords(values, no_wait));
}

// The kernel kills this process when the thread that started it ends. False: the parent with this
// PID has ended before.
bool end_with_parent(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  return ::getppid() == parent;
}

// A pidfd, which the caller must close; nullopt if there is no such process.
std::optional<int> open_process_handle(pid_t pid) {
  UniqueFd handle = open_process(pid);
  if (!handle) return std::nullopt;
  return handle.release();
}

Placeholders start_placeholders(const std::vector<std::string>& uuids) {
  return value_or_raise([&] {
    const ScopedGilRelease gil_release;
    return Placeholders::start(uuids);
  }());
}

}  // namespace
}  // namespace berth::python

NB_MODULE(_native, module) {
  using namespace berth::python;
  nb::set_leak_warnings(false);  // leases are held until the process exits on purpose
  module.attr("__version__") = BERTH_VERSION;
  module.def("describe_trust_problem", &berth::describe_trust_problem, "own"_a, "path"_a);
  module.def("set_helper_program", &berth::set_helper_program, "path"_a);
  module.def("prefetch_snapshot", &prefetch_snapshot);
  module.def("status", &status);
  module.def("select_named_gpus", &select_named_gpus, "list"_a);
  module.def("attach", &attach, "id"_a);
  module.def(
      "printable", [](const std::string& text) { return berth::printable(text); }, "text"_a);
  module.def("find_similar_word", &berth::find_similar_word, "word"_a, "candidates"_a);
  module.def("explain_decimal_size", &berth::explain_decimal_size, "argument"_a, "size"_a);
  module.def("check_request", &check_request, "values"_a, "no_wait"_a);
  module.def("end_with_parent", &end_with_parent, "parent"_a);
  module.def("open_process", &open_process_handle, "pid"_a);
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
  nb::class_<berth::Placeholders>(module, "Placeholders")
      .def("pids", &berth::Placeholders::pids)
      .def("release", &berth::Placeholders::stop, nb::call_guard<ScopedGilRelease>());
  module.def("start_placeholders", &start_placeholders, "uuids"_a);
}
