// Acquires and holds leases for a Python program; see lease.h.
#include "python/src/lease.h"

#include <chrono>
#include <fcntl.h>
#include <fmt/format.h>
#include <functional>
#include <memory>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>
#include <utility>

#include "base/text.h"
#include "devices/driver.h"
#include "lease/bell_holders.h"
#include "lease/job_environment.h"
#include "lease/select_free_gpus.h"
#include "profile/job_type.h"
#include "python/src/errors.h"
#include "python/src/interpreter.h"
#include "python/src/interrupt.h"
#include "python/src/request.h"
#include "python/src/watcher.h"
#include "run/grant_message.h"
#include "run/wait_display.h"
#include "status/status_format.h"
#include "status/status_json.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace berth::python {
namespace {

using Values = std::map<std::string, std::string>;

// Calls from acquire() into Python. An exception of a callback ends the wait; raise_problem()
// raises it then.
class PythonCallbacks {
 public:
  PythonCallbacks(Interrupt& interrupt, nb::object on_wait, nb::object on_time_passed,
                  nb::object on_notice, nb::object selector)
      : interrupt_(interrupt),
        on_wait_(std::move(on_wait)),
        on_time_passed_(std::move(on_time_passed)),
        on_notice_(std::move(on_notice)),
        selector_(std::move(selector)) {}

  AcquireCallbacks acquire_callbacks() {
    return {[this](const WaitStatus& status) { report_wait(status); },
            [this](const std::string& text) { notice(text); }, interrupt_.read_fd(),
            [this] { return is_cancelled(); }, [this] { report_time(); }};
  }

  void notice(const std::string& text) {
    call_python([&] { on_notice_(printable(text)); });
  }

  std::function<std::vector<std::string>()> selector() {
    if (selector_.is_none()) return nullptr;
    return [this] {
      std::vector<std::string> chosen;
      call_python([&] { chosen = nb::cast<std::vector<std::string>>(selector_()); });
      return chosen;
    };
  }

  // True also in a fork: signal handlers, callbacks and selectors may fork, and the child process
  // returns here.
  bool has_failed() const { return problem_.has_value() || is_forked(); }
  void raise_problem() const {
    if (problem_) throw nb::python_error(*problem_);
    if (is_forked()) {
      raise_error({ErrorKind::io,
                   "this process was forked while its parent waited for GPUs, and the ticket "
                   "belongs to the parent; request GPUs again in this process"});
    }
  }

 private:
  void report_time() {
    if (last_status_) call_python([&] { on_time_passed_(format_wait(*last_status_)); });
  }

  static std::string format_wait(const WaitStatus& status) {
    return printable(format_wait_status(status, std::chrono::system_clock::now()));
  }

  void report_wait(const WaitStatus& status) {
    last_status_ = status;
    const auto unix_time = [](TimePoint time) {
      return std::chrono::duration<double>(time.time_since_epoch()).count();
    };
    std::optional<double> starts;
    if (status.expected_start) starts = unix_time(*status.expected_start);
    std::optional<std::pair<std::string, double>> next_free;
    if (const auto& next = status.next_free)
      next_free.emplace(format_gpu_list(next->gpus), unix_time(next->at));
    call_python([&] {
      on_wait_(status.queue_position, status.queue_length, printable(status.reason), starts,
               next_free, format_wait(status));
    });
  }

  bool is_forked() const { return ::getpid() != pid_; }

  bool is_cancelled() {
    const ScopedGilAcquire gil;
    if (!has_failed() && !interrupt_.check_cancelled() && !is_forked()) return false;
    if (PyErr_Occurred() != nullptr) problem_.emplace();  // takes the exception of a signal handler
    if (!is_forked()) interrupt_.wake();  // stay readable, so that the next wait ends, too
    return true;
  }

  template <class Call>
  void call_python(Call call) {
    const ScopedGilAcquire gil;
    if (has_failed()) return;
    try {
      call();
    } catch (nb::python_error& error) {
      problem_.emplace(std::move(error));
      interrupt_.wake();
    } catch (const nb::cast_error&) {
      PyErr_SetString(PyExc_TypeError, "the selector must return a list of UUIDs");
      problem_.emplace();
      interrupt_.wake();
    }
  }

  Interrupt& interrupt_;
  nb::object on_wait_;
  nb::object on_time_passed_;
  nb::object on_notice_;
  nb::object selector_;
  std::optional<WaitStatus> last_status_;
  pid_t pid_ = ::getpid();
  std::optional<nb::python_error> problem_;
};

// Makes driver calls interruptible for its lifetime.
class ProbeInterruptScope {
 public:
  ProbeInterruptScope(Probe& probe, PythonCallbacks& callbacks) : probe_(probe) {
    const AcquireCallbacks acquire_callbacks = callbacks.acquire_callbacks();
    probe_.set_interrupt(acquire_callbacks.interrupt_fd, acquire_callbacks.confirm_interrupt);
  }
  ~ProbeInterruptScope() { probe_.set_interrupt(-1); }
  ProbeInterruptScope(const ProbeInterruptScope&) = delete;
  ProbeInterruptScope& operator=(const ProbeInterruptScope&) = delete;

 private:
  Probe& probe_;
};

// Null if the wait was cancelled.
std::shared_ptr<PythonLease> acquire_lease(const Values& values, bool no_wait,
                                           std::optional<std::string> visible_devices,
                                           std::string parent_lease, std::uint64_t mib_in_use,
                                           std::string command, Interrupt* given_interrupt,
                                           nb::object on_wait, nb::object on_time_passed,
                                           nb::object on_notice, nb::object selector) {
  AcquireRequest request =
      make_python_request(values, no_wait, std::move(visible_devices), std::move(parent_lease));
  request.memory_in_use = mib(mib_in_use);
  Interrupt& interrupt = given_interrupt != nullptr ? *given_interrupt : thread_interrupt();
  const SignalWakeup signals(interrupt);
  PythonCallbacks callbacks(interrupt, std::move(on_wait), std::move(on_time_passed),
                            std::move(on_notice), std::move(selector));
  const SamplingRate sampling_rate =
      request.profile_options ? SamplingRate::learning : SamplingRate::reporting;
  std::optional<ProfileOptions> profile_options = request.profile_options;
  request.command = std::move(command);
  request.selector = callbacks.selector();
  const std::shared_ptr<Probe> probe = thread_probe();
  const SlowDriverNotice slow_notice([&](const std::string& text) { callbacks.notice(text); });
  auto granted = [&] {
    const ScopedGilRelease gil_release;
    const ProbeInterruptScope interrupt_scope(*probe, callbacks);
    auto result = acquire(*probe, std::move(request), callbacks.acquire_callbacks());
    if (callbacks.has_failed() && result && *result) (*result)->release();
    return result;
  }();
  callbacks.raise_problem();
  auto lease = value_or_raise(std::move(granted));
  if (!lease) return nullptr;
  auto held =
      std::make_shared<PythonLease>(std::move(*lease), sampling_rate, std::move(profile_options));
  watch_lease(held);
  return held;
}

std::vector<std::string> select_without_lease(const Values& values,
                                              std::optional<std::string> visible_devices,
                                              std::string parent_lease, nb::object on_notice,
                                              nb::object selector) {
  AcquireRequest request =
      make_python_request(values, true, std::move(visible_devices), std::move(parent_lease));
  Interrupt& interrupt = thread_interrupt();
  const SignalWakeup signals(interrupt);
  PythonCallbacks callbacks(interrupt, nb::none(), nb::none(), std::move(on_notice),
                            std::move(selector));
  request.selector = callbacks.selector();
  const std::shared_ptr<Probe> probe = thread_probe();
  const SlowDriverNotice slow_notice([&](const std::string& text) { callbacks.notice(text); });
  auto chosen = [&] {
    const ScopedGilRelease gil_release;
    const ProbeInterruptScope interrupt_scope(*probe, callbacks);
    return select_free_gpus(*probe, request);
  }();
  callbacks.raise_problem();
  return value_or_raise(std::move(chosen));
}

nb::list indices(const PythonLease& lease) {
  nb::list list;
  for (const std::string& uuid : lease.record().uuids) {
    for (const Gpu& gpu : lease.host_gpus()) {
      if (gpu.uuid != uuid) continue;
      if (gpu.index.instance) {
        list.append(to_string(gpu.index));
      } else {
        list.append(gpu.index.card);
      }
    }
  }
  return list;
}

// Everything that the Python object stores, in one call: faster than four calls.
nb::tuple describe(const PythonLease& lease, const std::string& ids) {
  const Record& record = lease.record();
  const auto form = ids == "uuid" ? GpuIdFormat::uuid : GpuIdFormat::index;
  nb::dict environment;
  for (const auto& [name, value] :
       make_job_environment(lease.host_gpus(), record.uuids, form, record.id, record.epoch)) {
    environment[name.c_str()] = value;
  }
  return nb::make_tuple(record.id, indices(lease), record.uuids, environment);
}

// The lease's GPUs as they were when it was granted, in the format of `berth status --json`.
std::string gpus_json(const PythonLease& lease) {
  const Record& record = lease.record();
  Status status;
  status.leases = {record};
  for (const std::string& uuid : record.uuids) {
    for (const Gpu& gpu : lease.host_gpus()) {
      if (gpu.uuid != uuid) continue;
      GpuStatus one;
      one.view.gpu = gpu;
      for (const GpuProcess& process : gpu.processes) one.view.processes.push_back({process, ""});
      one.view.leases = {record.id};
      one.state_reason.state = record.request.memory ? GpuState::shared : GpuState::leased;
      status.gpus.push_back(std::move(one));
    }
  }
  return status_json(status, JsonForm::line);
}

// Whether this user has a finished run of this job type, or has set its memory.
bool has_profile(const std::string& job, unsigned count) {
  const ScopedGilRelease gil_release;
  const HarbourLocation harbour = harbour_location();
  const std::string type = make_named_job_type(job, count).name;
  const auto profile = read_profile(harbour, type);
  return profile && (!profile->runs.empty() || profile->set_memory);
}

std::string holders(const PythonLease& lease) {
  const ScopedGilRelease gil_release;
  return printable(format_bell_holders(lease.record()));
}

}  // namespace

int make_inheritable(UniqueFd fd) {
  ::fcntl(fd.get(), F_SETFD, 0);
  return fd.release();
}

PythonLease::PythonLease(Lease lease, SamplingRate sampling_rate,
                         std::optional<ProfileOptions> profile_options)
    : lease_(std::move(lease)),
      record_(lease_.record()),
      host_gpus_(lease_.host_gpus()),
      location_(lease_.harbour().location()),
      sampling_rate_(sampling_rate),
      profile_options_(std::move(profile_options)),
      owner_pid_(::getpid()) {
  set_inheritable_bell(lease_.make_inheritable_bell());
}

void PythonLease::set_inheritable_bell(UniqueFd bell) {
  inheritable_bell_ = std::move(bell);
  bell_fd_ = inheritable_bell_.get();
}

// Takes no lock: a fork has no other thread, and a thread of the parent may have held the mutex at
// the time of the fork.
void PythonLease::release_in_fork() NO_THREAD_SAFETY_ANALYSIS {
  set_inheritable_bell(UniqueFd());
  lease_.hand_over_bell();
}

void PythonLease::record_failure(const std::string& error_text) {
  if (owner_pid_ != ::getpid()) return;
  const MutexLock lock(mutex_);
  exit_class_ = mentions_out_of_memory(error_text) ? ExitClass::out_of_memory : ExitClass::failure;
}

std::chrono::milliseconds PythonLease::time_until_sample() {
  const MutexLock lock(mutex_);
  if (released_) return std::chrono::milliseconds::max();
  if (!sampler_) sampler_.emplace(lease_, sampling_rate_);
  return sampler_->time_to_next_sample();
}

void PythonLease::add_sample(const Result<std::vector<GpuSample>>& samples) {
  const MutexLock lock(mutex_);
  if (!released_ && sampler_) sampler_->add_sample(samples, lease_);
}

// Called before the release: a waiter that is granted first would profile again.
void PythonLease::record_profile_run() {
  if (record_.job.empty() || !record_.parent_lease.empty()) return;
  const auto lasted = std::chrono::steady_clock::now() - start_time_;
  const RunOutcome outcome{exit_class_, std::chrono::floor<std::chrono::milliseconds>(lasted)};
  (void)record_run(location_, record_, usage(), outcome);
  if (record_.is_profiling_run) wake_profile_waiters(lease_.harbour(), record_.uid, record_.job);
}

bool PythonLease::release() {
  if (owner_pid_ != ::getpid()) {
    release_in_fork();
    return false;
  }
  const MutexLock lock(mutex_);
  const bool already_released = std::exchange(released_, true);
  if (!already_released) record_profile_run();
  set_inheritable_bell(UniqueFd());
  const bool expects_forks = other_threads_fork_ || is_watcher_querying_driver();
  const bool ended =
      lease_.release(expects_forks ? Lease::kForkPatience : std::chrono::milliseconds(0));
  if (!already_released) archive_later(location_, current_history_entry_locked(Ending::released));
  return ended;
}

HistoryEntry PythonLease::current_history_entry_locked(Ending ending) const {
  return make_history_entry(record_, host_gpus_, ending, 0, usage());
}

std::optional<HistoryEntry> PythonLease::current_history_entry(Ending ending) {
  const MutexLock lock(mutex_);
  if (released_) return std::nullopt;
  return current_history_entry_locked(ending);
}

std::chrono::milliseconds PythonLease::maintain_heartbeat() {
  const MutexLock lock(mutex_);
  return released_ ? std::chrono::hours(1) : lease_.maintain_heartbeat();
}

void PythonLease::restore_if_deleted() {
  const MutexLock lock(mutex_);
  if (released_) return;
  auto notice = lease_.restore_if_deleted();
  if (!notice) return;
  notices_.push_back(std::move(*notice));
  set_inheritable_bell(lease_.make_inheritable_bell());
}

int PythonLease::deletion_watch_fd() {
  const MutexLock lock(mutex_);
  return released_ ? -1 : lease_.deletion_watch_fd();
}

std::string PythonLease::describe_grant() {
  const MutexLock lock(mutex_);
  return printable(format_grant(lease_, true, profile_options_));
}

std::vector<std::string> PythonLease::notices() {
  if (owner_pid_ != ::getpid()) return {};
  const MutexLock lock(mutex_);
  return std::exchange(notices_, {});
}

void define_lease(nb::module_& module) {
  nb::class_<PythonLease>(module, "Lease")
      .def("describe", &describe, "ids"_a)
      .def("gpus_json", &gpus_json)
      .def("fileno", &PythonLease::bell_fd)
      .def("record_failure", &PythonLease::record_failure, "error_text"_a)
      .def("is_profiling_run", &PythonLease::is_profiling_run)
      .def("set_other_threads_fork", &PythonLease::set_other_threads_fork)
      .def("release", &PythonLease::release, nb::call_guard<ScopedGilRelease>())
      .def("describe_grant", &PythonLease::describe_grant, nb::call_guard<ScopedGilRelease>())
      .def("notices", &PythonLease::notices)
      .def("holders", &holders);
  module.def("acquire", &acquire_lease, "values"_a, "no_wait"_a, "visible_devices"_a.none(),
             "within"_a, "mib_in_use"_a, "command"_a, "interrupt"_a.none(), "on_wait"_a,
             "on_time_passed"_a, "on_notice"_a, "selector"_a.none());
  module.def("has_profile", &has_profile, "job"_a, "count"_a);
  module.def(
      "job_type",
      [](const std::vector<std::string>& words, bool shell) {
        const bool hidden = are_commands_hidden();
        const JobType type = shell ? derive_line_job_type(words.at(0), 1, hidden)
                                   : derive_job_type(words, 1, hidden);
        return type.name;
      },
      "words"_a, "shell"_a);
  module.def("are_commands_hidden", &are_commands_hidden);
  module.def("select", &select_without_lease, "values"_a, "visible_devices"_a.none(), "within"_a,
             "on_notice"_a, "selector"_a.none());
}

}  // namespace berth::python
