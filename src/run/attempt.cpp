// Running under a lease; see attempt.h.
#include "run/attempt.h"

#include <chrono>
#include <fmt/format.h>
#include <sys/wait.h>
#include <utility>
#include <variant>

#include "base/terminal.h"
#include "devices/placeholder.h"
#include "lease/holders.h"
#include "lease/job_environment.h"
#include "lease/lease_history.h"
#include "run/keeper.h"
#include "run/output_tail.h"
#include "run/sampler.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;

// What is shorter tells little of the next one, unless the user named it.
constexpr std::chrono::seconds kWorthLearning(1);

// When the job's main process has ended but others of it still hold the lease.
void say_lease_stays(const Lease& lease) {
  const auto holders = bell_holders(lease.record());
  say(fmt::format("the lease {} stays until {} ended", lease.id(),
                  holders.empty()
                      ? "the processes that the job left behind have"
                      : fmt::format("{} {}", holders,
                                    holders.find(',') == std::string::npos ? "has" : "have")));
}

std::optional<Placeholders> hold_place(const Lease& lease) {
  auto held = Placeholders::start(lease.record().uuids);
  if (held) return std::move(*held);
  say(held.error().message);  // the job runs without it
  return std::nullopt;
}

// Tells what the run has shown, if it has shown anything, and whoever waits for that.
void pass_on(Lease& lease, const AttemptEnd& end, Clock::duration lasted,
             const AttemptOptions& options) {
  const Record& record = lease.record();
  const bool worth =
      options.teaches || (lasted >= kWorthLearning && end.verdict == ExitClass::success);
  if (record.job.empty() || !record.within.empty() || !worth) return;
  const RunOutcome lesson{end.verdict, std::chrono::floor<std::chrono::milliseconds>(lasted)};
  (void)record_run(lease.harbour().location(), record, end.usage, lesson);
  if (record.profiles) wake_waiters(lease.harbour(), record.uid, record.job);
}

class Attempt {
 public:
  Attempt(Probe& probe, Lease lease, const AttemptOptions& options, SignalQueue& signals)
      : probe_(probe),
        lease_(std::move(lease)),
        options_(options),
        signals_(signals),
        // Whatever was asked for: it teaches what the next one may reserve.
        sampler_(lease_, SamplingRate::learning) {}

  AttemptEnd run(Job job) {
    prepare(job);
    if (options_.placeholder) placeholders_ = hold_place(lease_);
    // Ctrl-C reaches who is there: no job yet, which could obey it.
    while (const auto signal = signals_.next()) {
      if (signal->ssi_signo == SIGCHLD) continue;
      placeholders_.reset();
      lease_.release();
      return {128 + static_cast<int>(signal->ssi_signo)};
    }
    const OutputTail words;
    const auto begin = Clock::now();
    const auto started = start_job(job, lease_, signals_);
    if (const auto* problem = std::get_if<NoSuchProgram>(&started)) {
      lease_.release();
      say(problem->message);
      return {problem->code};
    }
    probe_.interrupt_by(signals_.fd());  // the job's end is not missed while a driver hangs
    const JobEnd ended =
        supervise(std::get<pid_t>(started), lease_, signals_,
                  {say, [this] { on_long(); }, [this] { return sample(sampler_, probe_, lease_); },
                   options_.whole_group, options_.lifeline});
    const auto lasted = Clock::now() - begin;
    probe_.interrupt_by(-1);
    return finish(ended, lasted, words);
  }

 private:
  void prepare(Job& job) {
    const IdForm form = options_.uuids ? IdForm::uuid : IdForm::index;
    job.environment = job_environment(lease_.host_gpus(), lease_.record().uuids, form, lease_.id(),
                                      lease_.record().epoch);
    if (options_.replace.empty()) return;
    job.command = with_gpus(job.command, options_.replace,
                            index_list(lease_.host_gpus(), lease_.record().uuids));
  }

  void on_long() {
    record(Ending::running, 0);
    if (lease_.harbour().is_shared()) start_orphan_heartbeat(lease_);
  }

  void record(Ending ending, int code) {
    (void)archive(lease_.harbour().location(), history_entry(lease_.record(), lease_.host_gpus(),
                                                             ending, code, sampler_.usage()));
  }

  AttemptEnd finish(const JobEnd& ended, Clock::duration lasted, const OutputTail& words) {
    const int status = ended.status;
    const bool succeeded = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    AttemptEnd end{exit_code(status),
                   true,
                   ended.interrupted,
                   ExitClass::failure,
                   words.known(),
                   sampler_.usage(),
                   lease_.record().request.memory};
    // Who was asked to end did not end for want of memory, whatever it and the card say.
    if (succeeded || !ended.interrupted) {
      end.verdict = classify_exit(succeeded, lease_.record(), end.usage,
                              succeeded ? std::string() : words.read());
    }
    placeholders_.reset();
    // Who waits for the profile would be measured again, were it not there before the release.
    const bool profiles = lease_.record().profiles;
    if (profiles) pass_on(lease_, end, lasted, options_);
    probe_.rest();
    if (!lease_.release()) say_lease_stays(lease_);
    if (WIFSIGNALED(status)) {
      record(Ending::killed, WTERMSIG(status));
    } else {
      record(Ending::exited, WEXITSTATUS(status));
    }
    if (!profiles) pass_on(lease_, end, lasted, options_);
    return end;
  }

  Probe& probe_;
  Lease lease_;
  const AttemptOptions& options_;
  SignalQueue& signals_;
  Sampler sampler_;
  std::optional<Placeholders> placeholders_;
};

}  // namespace

AttemptEnd attempt(Probe& probe, Lease lease, Job job, const AttemptOptions& options,
                   SignalQueue& signals) {
  return Attempt(probe, std::move(lease), options, signals).run(std::move(job));
}

}  // namespace berth
