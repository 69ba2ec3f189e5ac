// One attempt to run a job under a lease; see attempt.h.
#include "run/attempt.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <sys/wait.h>
#include <utility>
#include <variant>

#include "base/terminal.h"
#include "base/text.h"
#include "base/time_text.h"
#include "devices/placeholder.h"
#include "lease/bell_holders.h"
#include "lease/job_environment.h"
#include "lease/lease_history.h"
#include "run/job_alerts.h"
#include "run/keeper.h"
#include "run/output_limit.h"
#include "run/output_tail.h"
#include "run/sampler.h"
#include "status/explain.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;

// A shorter run says little about the next one; it is recorded only if the user named the job.
constexpr std::chrono::seconds kMinRecordedRunTime(1);

// For when the job's main process has ended but other processes of the job still hold the lease.
void report_remaining_holders(const Lease& lease) {
  const auto holders = format_bell_holders(lease.record());
  print_message(fmt::format(
      "lease {} stays until {} ended", lease.id(),
      holders.empty() ? "the processes that the job left behind have"
                      : fmt::format("{} {}", holders,
                                    holders.find(',') == std::string::npos ? "has" : "have")));
}

std::optional<Placeholders> start_placeholders(const Lease& lease) {
  auto placeholders = Placeholders::start(lease.record().uuids);
  if (placeholders) return std::move(*placeholders);
  print_message(placeholders.error().message);  // the job runs without them
  return std::nullopt;
}

// Records the run in the profile of its job type, if the run says anything about the next one, and
// wakes the tickets that wait for that profile.
void record_outcome(Lease& lease, const AttemptResult& end, Clock::duration run_time,
                    const AttemptOptions& options) {
  const Record& record = lease.record();
  const bool is_worth_recording = options.always_record || (run_time >= kMinRecordedRunTime &&
                                                            end.exit_class == ExitClass::success);
  if (record.job.empty() || !record.parent_lease.empty() || !is_worth_recording) return;
  const RunOutcome outcome{end.exit_class, std::chrono::floor<std::chrono::milliseconds>(run_time)};
  (void)record_run(lease.harbour().location(), record, end.usage, outcome);
  if (record.is_profiling_run) wake_profile_waiters(lease.harbour(), record.uid, record.job);
}

class Attempt {
 public:
  Attempt(Probe& probe, Lease lease, const AttemptOptions& options, SignalQueue& signals)
      : probe_(probe),
        lease_(std::move(lease)),
        options_(options),
        signals_(signals),
        // At the learning rate for every request: the profile decides what the next run reserves.
        sampler_(lease_, SamplingRate::learning),
        output_limit_(options.bounded_output, options.output_limit) {
    if (options.alert_before_end)
      end_alert_.emplace(*options.alert_before_end, lease_.record().granted);
    if (options.alert_idle) idle_alert_.emplace(*options.alert_idle);
  }

  AttemptResult run(Job job) {
    set_up_gpus(job);
    if (options_.use_placeholder) placeholders_ = start_placeholders(lease_);
    // The job is not there yet to handle a signal, so a signal that is queued ends the attempt.
    while (const auto signal = signals_.next()) {
      if (signal->ssi_signo == SIGCHLD) continue;
      placeholders_.reset();
      lease_.release();
      return {128 + static_cast<int>(signal->ssi_signo)};
    }
    const OutputTail tail;
    const auto begin = Clock::now();
    const auto started = start_job(job, lease_, signals_);
    if (const auto* problem = std::get_if<ProgramError>(&started)) {
      lease_.release();
      print_message(problem->message);
      return {problem->code};
    }
    probe_.set_interrupt(signals_.fd());  // notice the job's end even while a driver hangs
    const JobEnd ended =
        supervise(std::get<pid_t>(started), lease_, signals_,
                  {print_message, [this] { on_long_run(); }, [this] { return work_if_due(); },
                   options_.whole_group, options_.lifeline});
    const auto run_time = Clock::now() - begin;
    probe_.set_interrupt(-1);
    if (options_.bounded_output >= 0) output_limit_.apply();  // what it wrote since the last check
    return finish(ended, run_time, tail);
  }

 private:
  std::chrono::milliseconds work_if_due() {
    using std::chrono::milliseconds;
    auto due = sample_if_due(sampler_, probe_, lease_);
    if (options_.on_alert) report_samples();
    if (end_alert_) due = std::min(due, report_end_if_due());
    if (options_.bounded_output < 0) return due;
    const auto now = Clock::now();
    if (now >= output_check_) output_check_ = now + output_limit_.apply();
    return std::min(due, std::chrono::ceil<milliseconds>(output_check_ - now));
  }

  std::string describe_gpus(const std::vector<std::string>& uuids) const {
    return gpu_list(format_gpu_indices(lease_.host_gpus(), uuids));
  }

  void report_samples() {
    const UsageMeter& meter = sampler_.meter();
    if (const auto& intruder = meter.intruder()) {
      options_.on_alert(
          {NotifyEvent::stranger, fmt::format("{} on {}", describe_stranger(intruder->process),
                                              describe_gpus({intruder->uuid}))});
    }
    if (!meter.lost_gpu().empty()) {
      options_.on_alert({NotifyEvent::gpu_lost,
                         fmt::format("the driver has lost {}", describe_gpus({meter.lost_gpu()}))});
    }
    if (!idle_alert_) return;
    if (const auto idle = idle_alert_->observe(sampler_.load(), Clock::now())) {
      const std::vector<std::string>& uuids = lease_.record().uuids;
      options_.on_alert(
          {NotifyEvent::idle,
           fmt::format("{} {} idle for {}", describe_gpus(uuids),
                       uuids.size() == 1 ? "has been" : "have been", format_whole_seconds(*idle)),
           std::nullopt, idle});
    }
  }

  // An estimate from earlier runs (Record::time_is_estimated) is not an announced end.
  std::optional<TimePoint> announced_end() const {
    return lease_.record().time_is_estimated ? std::nullopt : lease_.record().expected_end();
  }

  // Returns the time until the next call is due.
  std::chrono::milliseconds report_end_if_due() {
    constexpr std::chrono::milliseconds kNotDue = std::chrono::hours(1);
    const TimePoint now = std::chrono::system_clock::now();
    end_alert_->set_end(announced_end(), now);
    if (end_alert_->due() && *end_alert_->due() <= now) {
      lease_.update_announced_end();  // 'berth extend' may have moved it a moment ago
      end_alert_->set_end(announced_end(), now);
    }
    const auto due = end_alert_->due();
    if (!due) return kNotDue;
    if (*due > now) return std::chrono::ceil<std::chrono::milliseconds>(*due - now);
    end_alert_->set_reported();
    const TimePoint end = *announced_end();
    const auto left =
        std::max(std::chrono::round<std::chrono::seconds>(end - now), std::chrono::seconds(0));
    options_.on_alert({NotifyEvent::about_to_end,
                       fmt::format("announced to end in {}; 'berth extend {} 1h' tells the other "
                                   "users that it takes longer",
                                   format_whole_seconds(left), lease_.id()),
                       end});
    return kNotDue;
  }

  void set_up_gpus(Job& job) {
    const GpuIdFormat form = options_.show_uuids ? GpuIdFormat::uuid : GpuIdFormat::index;
    job.environment = make_job_environment(lease_.host_gpus(), lease_.record().uuids, form,
                                           lease_.id(), lease_.record().epoch);
    if (options_.gpu_token.empty()) return;
    job.command =
        substitute_gpu_placeholder(job.command, options_.gpu_token,
                                   format_gpu_indices(lease_.host_gpus(), lease_.record().uuids));
  }

  void on_long_run() {
    record(Ending::running, 0);
    if (lease_.harbour().is_multi_host()) start_orphan_heartbeat(lease_);
  }

  void record(Ending ending, int code) {
    (void)archive_entry(
        lease_.harbour().location(),
        make_history_entry(lease_.record(), lease_.host_gpus(), ending, code, sampler_.usage()));
  }

  AttemptResult finish(const JobEnd& ended, Clock::duration run_time, const OutputTail& tail) {
    const int status = ended.status;
    const bool succeeded = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    AttemptResult end{exit_code(status),
                      true,
                      ended.interrupted,
                      ExitClass::failure,
                      tail.has_stderr(),
                      sampler_.usage(),
                      lease_.record().request.memory,
                      WIFSIGNALED(status) ? std::optional(WTERMSIG(status)) : std::nullopt,
                      run_time};
    // A job that was asked to end did not end for lack of memory, whatever its output and the
    // driver's numbers suggest.
    if (succeeded || !ended.interrupted) {
      end.exit_class = classify_exit(succeeded, lease_.record(), end.usage,
                                     succeeded ? std::string() : tail.read());
    }
    placeholders_.reset();
    // Write the profile before the release: a waiter that is granted first would profile again.
    const bool profiling_run = lease_.record().is_profiling_run;
    if (profiling_run) record_outcome(lease_, end, run_time, options_);
    // Not close_session(): this process exits soon, and the driver's helper with it. Until then the
    // helper's exit would only take the processor from this process.
    probe_.abandon_query();
    if (!lease_.release(Lease::kForkPatience)) report_remaining_holders(lease_);
    if (WIFSIGNALED(status)) {
      record(Ending::killed, WTERMSIG(status));
    } else {
      record(Ending::exited, WEXITSTATUS(status));
    }
    if (!profiling_run) record_outcome(lease_, end, run_time, options_);
    return end;
  }

  Probe& probe_;
  Lease lease_;
  const AttemptOptions& options_;
  SignalQueue& signals_;
  Sampler sampler_;
  OutputLimit output_limit_;
  Clock::time_point output_check_{};
  std::optional<Placeholders> placeholders_;
  std::optional<EndAlert> end_alert_;
  std::optional<IdleAlert> idle_alert_;
};

}  // namespace

AttemptResult run_attempt(Probe& probe, Lease lease, Job job, const AttemptOptions& options,
                          SignalQueue& signals) {
  return Attempt(probe, std::move(lease), options, signals).run(std::move(job));
}

}  // namespace berth
