// Acquiring and holding from Python; see lease.h.
#include "python/src/lease.h"

#include <chrono>
#include <fcntl.h>
#include <fmt/format.h>
#include <functional>
#include <memory>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/text.h"
#include "devices/driver.h"
#include "lease/holders.h"
#include "lease/job_environment.h"
#include "lease/select_free.h"
#include "profile/job_type.h"
#include "python/src/errors.h"
#include "python/src/interpreter.h"
#include "python/src/interrupt.h"
#include "python/src/request.h"
#include "python/src/watcher.h"
#include "status/status_json.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace berth::python {
namespace {

using Values = std::map<std::string, std::string>;

// Calls from the broker into Python. What they raise ends the waiting, and is raised at its end.
class Callbacks {
 public:
  Callbacks(Interrupt& interrupt, nb::object on_wait, nb::object on_notice, nb::object selector)
      : interrupt_(interrupt),
        on_wait_(std::move(on_wait)),
        on_notice_(std::move(on_notice)),
        selector_(std::move(selector)) {}

  Hooks hooks() {
    return {[this](const WaitNews& news) { tell(news); },
            [this](const std::string& text) { notice(text); }, interrupt_.reading(),
            [this] { return leaves(); }};
  }

  void notice(const std::string& text) {
    guarded([&] { on_notice_(printable(text)); });
  }

  std::function<std::vector<std::string>()> selector() {
    if (selector_.is_none()) return nullptr;
    return [this] {
      std::vector<std::string> chosen;
      guarded([&] { chosen = nb::cast<std::vector<std::string>>(selector_()); });
      return chosen;
    };
  }

  // In a fork, too: signal handlers, callbacks and selectors may fork, and the child returns here.
  bool failed() const { return problem_.has_value() || is_fork(); }
  void raise_problem() const {
    if (problem_) throw nb::python_error(*problem_);
    if (is_fork()) {
      raise({ErrorKind::io,
             "this process was forked while its parent waited for GPUs, and the place in the queue "
             "is the parent's; ask again in this process"});
    }
  }

 private:
  void tell(const WaitNews& news) {
    std::optional<double> starts;
    if (news.starts) {
      starts = std::chrono::duration<double>(news.starts->time_since_epoch()).count();
    }
    guarded([&] { on_wait_(news.position, news.length, printable(news.reason), starts); });
  }

  bool is_fork() const { return ::getpid() != process_; }

  bool leaves() {
    const WithInterpreter held;
    if (!failed() && !interrupt_.leaves() && !is_fork()) return false;
    if (PyErr_Occurred() != nullptr) problem_.emplace();  // takes what a signal's handler raised
    if (!is_fork()) interrupt_.wake();  // so that the next question is answered so
    return true;
  }

  template <class Call>
  void guarded(Call call) {
    const WithInterpreter held;
    if (failed()) return;
    try {
      call();
    } catch (nb::python_error& error) {
      problem_.emplace(std::move(error));
      interrupt_.wake();
    } catch (const nb::cast_error&) {
      PyErr_SetString(PyExc_TypeError, "the selector must give a list of UUIDs");
      problem_.emplace();
      interrupt_.wake();
    }
  }

  Interrupt& interrupt_;
  nb::object on_wait_;
  nb::object on_notice_;
  nb::object selector_;
  pid_t process_ = ::getpid();
  std::optional<nb::python_error> problem_;
};

// Has the driver's questions obey the interrupt, until this ends.
class Interruptible {
 public:
  Interruptible(Probe& probe, Callbacks& callbacks) : probe_(probe) {
    const Hooks hooks = callbacks.hooks();
    probe_.interrupt_by(hooks.interrupt, hooks.leaves);
  }
  ~Interruptible() { probe_.interrupt_by(-1); }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  Probe& probe_;
};

// Nothing if it was told to leave.
std::shared_ptr<HeldLease> acquire_lease(const Values& values, bool no_wait,
                                         std::optional<std::string> visible_devices,
                                         std::string within, std::string command, Interrupt* given,
                                         nb::object on_wait, nb::object on_notice,
                                         nb::object selector) {
  AcquireRequest ask = make_python_ask(values, no_wait, std::move(visible_devices), std::move(within));
  Interrupt& interrupt = given != nullptr ? *given : own_interrupt();
  const SignalsWake signals(interrupt);
  Callbacks callbacks(interrupt, std::move(on_wait), std::move(on_notice), std::move(selector));
  const SamplingRate attention = ask.learning ? SamplingRate::learning : SamplingRate::reporting;
  ask.command = std::move(command);
  ask.selector = callbacks.selector();
  const std::shared_ptr<Probe> probe = own_probe();
  const SlowDriverNotice slow([&](const std::string& text) { callbacks.notice(text); });
  auto granted = [&] {
    const WithoutInterpreter free;
    const Interruptible interruptible(*probe, callbacks);
    auto result = acquire(*probe, std::move(ask), callbacks.hooks());
    if (callbacks.failed() && result && *result) (*result)->release();
    return result;
  }();
  callbacks.raise_problem();
  auto lease = unless_error(std::move(granted));
  if (!lease) return nullptr;
  auto held = std::make_shared<HeldLease>(std::move(*lease), attention);
  watch(held);
  return held;
}

std::vector<std::string> select(const Values& values, std::optional<std::string> visible_devices,
                                std::string within, nb::object on_notice, nb::object selector) {
  AcquireRequest ask = make_python_ask(values, true, std::move(visible_devices), std::move(within));
  Interrupt& interrupt = own_interrupt();
  const SignalsWake signals(interrupt);
  Callbacks callbacks(interrupt, nb::none(), std::move(on_notice), std::move(selector));
  ask.selector = callbacks.selector();
  const std::shared_ptr<Probe> probe = own_probe();
  const SlowDriverNotice slow([&](const std::string& text) { callbacks.notice(text); });
  auto chosen = [&] {
    const WithoutInterpreter free;
    const Interruptible interruptible(*probe, callbacks);
    return choose_free(*probe, ask);
  }();
  callbacks.raise_problem();
  return unless_error(std::move(chosen));
}

nb::list indices(const HeldLease& held) {
  nb::list list;
  for (const std::string& uuid : held.record().uuids) {
    for (const Gpu& gpu : held.host_gpus()) {
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

// What Python's own object keeps: in one call, which is quicker than four.
nb::tuple describe(const HeldLease& held, const std::string& ids) {
  const Record& record = held.record();
  const auto form = ids == "uuid" ? IdForm::uuid : IdForm::index;
  nb::dict environment;
  for (const auto& [name, value] :
       job_environment(held.host_gpus(), record.uuids, form, record.id, record.epoch)) {
    environment[name.c_str()] = value;
  }
  return nb::make_tuple(record.id, indices(held), record.uuids, environment);
}

// Its GPUs as they were when it was granted, in the form of `berth status --json`.
std::string gpus_json(const HeldLease& held) {
  const Record& record = held.record();
  Status status;
  status.leases = {record};
  for (const std::string& uuid : record.uuids) {
    for (const Gpu& gpu : held.host_gpus()) {
      if (gpu.uuid != uuid) continue;
      GpuStatus one;
      one.placed.gpu = gpu;
      for (const GpuProcess& process : gpu.processes) one.placed.processes.push_back({process, ""});
      one.placed.leases = {record.id};
      one.judgement.state = record.request.memory ? GpuState::shared : GpuState::leased;
      status.gpus.push_back(std::move(one));
    }
  }
  return status_json(status, JsonForm::line);
}

// Has a job of this type of this user run to its end, or was its memory set?
bool is_known(const std::string& job, unsigned count) {
  const WithoutInterpreter free;
  const HarbourLocation harbour = harbour_location();
  const std::string type = named_type(job, count).name;
  const auto own = read_profile(harbour, type);
  return own && (!own->runs.empty() || own->set_memory);
}

std::string holders(const HeldLease& held) {
  const WithoutInterpreter free;
  return printable(bell_holders(held.record()));
}

}  // namespace

int inheritable(UniqueFd fd) {
  ::fcntl(fd.get(), F_SETFD, 0);
  return fd.release();
}

HeldLease::HeldLease(Lease lease, SamplingRate attention)
    : lease_(std::move(lease)),
      record_(lease_.record()),
      host_gpus_(lease_.host_gpus()),
      location_(lease_.harbour().location()),
      attention_(attention),
      maker_(::getpid()) {
  offer_bell(lease_.bell_for_programs());
}

void HeldLease::offer_bell(UniqueFd bell) {
  for_programs_ = std::move(bell);
  bell_ = for_programs_.get();
}

// In a fork there is no other thread, and the mutex may be held by one that is not there.
void HeldLease::let_go_in_fork() NO_THREAD_SAFETY_ANALYSIS {
  offer_bell(UniqueFd());
  lease_.hand_over();
}

void HeldLease::fail(const std::string& words) {
  if (maker_ != ::getpid()) return;
  const MutexLock lock(mutex_);
  verdict_ = tells_of_memory(words) ? ExitClass::out_of_memory : ExitClass::failure;
}

std::chrono::milliseconds HeldLease::due() {
  const MutexLock lock(mutex_);
  if (released_) return std::chrono::milliseconds::max();
  if (!sampler_) sampler_.emplace(lease_, attention_);
  return sampler_->due();
}

void HeldLease::take(const Result<std::vector<GpuUse>>& uses) {
  const MutexLock lock(mutex_);
  if (!released_ && sampler_) sampler_->take(uses, lease_);
}

// Before the release, for the same reason as with `berth run`.
void HeldLease::pass_on() {
  if (record_.job.empty() || !record_.within.empty()) return;
  const auto lasted = std::chrono::steady_clock::now() - begin_;
  const RunOutcome lesson{verdict_, std::chrono::floor<std::chrono::milliseconds>(lasted)};
  (void)record_run(location_, record_, usage(), lesson);
  if (record_.profiles) wake_waiters(lease_.harbour(), record_.uid, record_.job);
}

bool HeldLease::release() {
  if (maker_ != ::getpid()) {
    let_go_in_fork();
    return false;
  }
  const MutexLock lock(mutex_);
  const bool again = std::exchange(released_, true);
  if (!again) pass_on();
  offer_bell(UniqueFd());
  bool gone = lease_.release();
  // A helper that the watcher has only begun to start has the bell until it is itself.
  constexpr int kMostMs = 20;
  for (int i = 0; !gone && i < kMostMs && watcher_asks(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    gone = lease_.release();
  }
  if (!again) archive_later(location_, entry_now(Ending::released));
  return gone;
}

HistoryEntry HeldLease::entry_now(Ending ending) const {
  return history_entry(record_, host_gpus_, ending, 0, usage());
}

std::optional<HistoryEntry> HeldLease::entry(Ending ending) {
  const MutexLock lock(mutex_);
  if (released_) return std::nullopt;
  return entry_now(ending);
}

std::chrono::milliseconds HeldLease::keep() {
  const MutexLock lock(mutex_);
  return released_ ? std::chrono::hours(1) : lease_.keep();
}

void HeldLease::restore() {
  const MutexLock lock(mutex_);
  if (released_) return;
  auto notice = lease_.restore();
  if (!notice) return;
  notices_.push_back(std::move(*notice));
  offer_bell(lease_.bell_for_programs());
}

int HeldLease::deletion_watch() {
  const MutexLock lock(mutex_);
  return released_ ? -1 : lease_.deletion_watch();
}

std::vector<std::string> HeldLease::notices() {
  if (maker_ != ::getpid()) return {};
  const MutexLock lock(mutex_);
  return std::exchange(notices_, {});
}

void define_lease(nb::module_& module) {
  nb::class_<HeldLease>(module, "Lease")
      .def("describe", &describe, "ids"_a)
      .def("gpus_json", &gpus_json)
      .def("fileno", &HeldLease::bell)
      .def("fail", &HeldLease::fail, "words"_a)
      .def("measures", &HeldLease::measures)
      .def("release", &HeldLease::release, nb::call_guard<WithoutInterpreter>())
      .def("notices", &HeldLease::notices)
      .def("holders", &holders);
  module.def("acquire", &acquire_lease, "values"_a, "no_wait"_a, "visible_devices"_a.none(),
             "within"_a, "command"_a, "interrupt"_a.none(), "on_wait"_a, "on_notice"_a,
             "selector"_a.none());
  module.def("is_known", &is_known, "job"_a, "count"_a);
  module.def(
      "job_type",
      [](const std::vector<std::string>& words, bool shell) {
        const bool hidden = commands_are_hidden();
        const JobType type =
            shell ? derive_line_type(words.at(0), 1, hidden) : derive_type(words, 1, hidden);
        return type.name;
      },
      "words"_a, "shell"_a);
  module.def("commands_are_hidden", &commands_are_hidden);
  module.def("select", &select, "values"_a, "visible_devices"_a.none(), "within"_a, "on_notice"_a,
             "selector"_a.none());
}

}  // namespace berth::python
