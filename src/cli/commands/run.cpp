// The command `berth run [REQUEST] -- CMD…`.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <variant>
#include <vector>

#include "base/configuration.h"
#include "base/descriptors.h"
#include "base/environment.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/request_flags.h"
#include "cluster/remote/permitted_hosts.h"
#include "cluster/remote/remote_job_spec.h"
#include "cluster/remote/remote_run.h"
#include "devices/driver.h"
#include "lease/acquire.h"
#include "lease/job_environment.h"
#include "profile/job_type.h"
#include "run/attempt.h"
#include "run/detach.h"
#include "run/job.h"
#include "run/notify.h"
#include "run/run_event_writer.h"
#include "run/start_conditions.h"
#include "run/wait_display.h"

namespace berth {
namespace {

struct RunCommandOptions {
  std::shared_ptr<RequestOptions> request;
  std::string ids = "index";
  AttemptOptions attempt;
  unsigned retries = 0;            // after the job ran out of GPU memory
  bool anywhere = false;           // run on any host that the configuration lists
  std::vector<std::string> hosts;  // or on one of these; neither: on this host
  std::vector<std::string> environment;
  std::string job_spec_file;   // from another host; see cluster/remote/remote_job_spec.h
  int event_fd = -1;           // for the `berth batch` that started this; see run_event_writer.h
  bool hides_commands = true;  // from other users; found out once per run
  bool detach = false;
  StartConditions start;
  NotifyOptions notify;
};

AcquireRequest make_run_request(const RunCommandOptions& options, const Job& job) {
  const RequestOptions& requested = *options.request;
  AcquireRequest request = make_acquire_request(requested);
  request.command = public_command(job.command, options.hides_commands);
  const unsigned count = request.gpu_request.count;
  const JobType type = requested.job.empty()
                           ? derive_job_type(job.command, count, options.hides_commands)
                           : make_named_job_type(requested.job, count);
  request.profile_options =
      ProfileOptions{type.name, requested.auto_memory, !requested.request.time};
  return request;
}

// Raises the request after the job ran out of memory; for the last attempt, to exclusive GPUs.
// False if the job had its GPUs alone: then there is no more memory to request.
bool raise_memory_request(AcquireRequest& request, const AttemptResult& end, bool last) {
  if (!end.reserved) return false;
  const Bytes more = memory_after_oom(std::max(*end.reserved, end.usage.peak().value_or(Bytes{})));
  request.profile_options->min_memory = more;
  request.profile_options->exclusive = last;
  print_message(fmt::format(
      "the job ran out of memory with {}; trying again with {}", format_size(*end.reserved),
      last ? "exclusive GPUs" : fmt::format("{} (at most a whole GPU)", format_size(more))));
  return true;
}

// The job failed on a share of a GPU, and its error output could not be read.
bool may_be_out_of_memory(const AttemptResult& end) {
  return end.ran && !end.interrupted && end.code != 0 && end.reserved && !end.has_stderr_tail &&
         end.exit_class == ExitClass::failure;
}

// Gives this process the environment and folder of the host that sent the job. Returns an exit code
// if that fails, after it has printed why.
std::optional<int> apply_job_spec(const RemoteJobSpec& job_spec) {
  for (const auto& [name, value] : job_spec.environment) {
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  const auto here = harbour_location();
  if (here.host != job_spec.host) {
    print_message(fmt::format(
        "this host is called {} in the harbour, but the job was sent to {}; check BERTH_HOST",
        in_quotes(here.host), in_quotes(job_spec.host)));
    return exit_code(ErrorKind::usage);
  }
  if (::chdir(job_spec.directory.c_str()) != 0) {
    print_message(fmt::format("{} cannot change to the directory {}: {}", here.host,
                              in_quotes(job_spec.directory), std::strerror(errno)));
    return kExitNotRunnable;
  }
  return std::nullopt;
}

bool is_remote(const RunCommandOptions& options) {
  if (options.anywhere) return true;
  if (options.hosts.empty()) return false;
  return options.hosts != std::vector{harbour_location().host};
}

// The flags of the `berth run` on the other host. The timeout of the wait counts here, not there.
std::vector<std::string> remote_run_flags(const RunCommandOptions& options) {
  std::vector<std::string> flags;
  for (const std::string& word : options.request->flags) {
    if (!word.starts_with("--timeout=")) flags.push_back(word);
  }
  flags.push_back(fmt::format("--ids={}", options.ids));
  if (!options.attempt.gpu_token.empty()) {
    flags.insert(flags.end(), {"-I", options.attempt.gpu_token});
  }
  if (options.attempt.use_placeholder) flags.emplace_back("--placeholder");
  if (options.retries > 0) flags.push_back(fmt::format("--retry-oom={}", options.retries));
  return flags;
}

// Runs the job on the first host that grants it: the exit code of the remote job, or the lease if
// that is this host.
Result<std::variant<int, Lease>> run_on_hosts(const RunCommandOptions& options,
                                              AcquireRequest request, const Job& job, Probe* probe,
                                              JobRecorder& recorder) {
  if (request.harbour.configuration_error)
    return tl::make_unexpected(*request.harbour.configuration_error);
  if (!request.harbour.url) {
    return fail(ErrorKind::usage,
                "run: --host needs a harbour of several hosts; set BERTH_URL (docs/redis.md)");
  }
  RemoteJob remote;
  remote.hosts = TRY(permitted_hosts(options.anywhere ? std::nullopt : std::optional(options.hosts),
                                     request.harbour.host));
  remote.skip_unknown_hosts = options.anywhere;
  remote.environment = TRY(select_environment(options.environment));
  remote.flags = remote_run_flags(options);
  remote.command = job.command;
  if (recorder.is_active()) {
    request.preferred_id = recorder.id();
    for (const char* name : {"BERTH_JOB", "PYTHONUNBUFFERED"})
      remote.environment.emplace(remote.environment.begin(), name, get_env_or_empty(name));
    remote.on_wait = [&recorder] { recorder.report_ready(); };
    remote.on_granted = [&recorder](const RedisHostStore::Claim& claim) {
      recorder.write_remote_granted(claim.lease, claim.host);
    };
    remote.output_limit.emplace(STDOUT_FILENO, TRY(read_configuration()).job_output);
  }
  request.parent_lease.clear();  // a lease of this host means nothing on other hosts
  request.visible_devices.reset();
  return run_remote_job(request, remote, probe);
}

// What can be refused at once, before a detached job leaves the user's terminal.
Result<std::optional<ProgramError>> check_run(const RunCommandOptions& options, Job& job) {
  if (job.command.empty()) {
    return fail(ErrorKind::usage,
                "run: no command given; write one after --, such as: berth run -- python train.py");
  }
  TRY(check_start_conditions(options.start));
  if (is_remote(options)) return std::nullopt;
  if (!options.environment.empty()) {
    return fail(ErrorKind::usage, "run: --env needs --host; a local job inherits your environment");
  }
  auto found = find_program(job.command.front());
  if (auto* problem = std::get_if<ProgramError>(&found)) return std::move(*problem);
  job.program = std::move(std::get<std::string>(found));
  return std::nullopt;
}

// A job that another host has sent is the job of that host, which notifies. The configuration's
// `always` of a batch counts for the batch, not for each of its lines.
Result<Notifier> make_notifier(const RunCommandOptions& options,
                               const std::vector<std::string>& command) {
  if (!options.job_spec_file.empty()) return Notifier();
  return Notifier::create(
      options.notify,
      {false, options.request->label, public_command(command, options.hides_commands)},
      options.event_fd < 0);
}

Notifier::JobResult make_job_result(const AttemptResult& end) {
  Notifier::JobResult result{end.code, end.signal, end.exit_class == ExitClass::out_of_memory,
                             end.interrupted};
  if (end.ran) result.run_time = end.run_time;
  return result;
}

constexpr int kFirstSignalCode = 128;

void notify_granted(Notifier& notifier, Lease& lease) {
  if (!notifier.is_active()) return;
  notifier.send_granted(lease.id(), format_gpu_indices(lease.host_gpus(), lease.record().uuids));
}

// `notifier` must outlive the attempts.
Result<AttemptOptions> make_attempt_options(const RunCommandOptions& options,
                                            const JobRecorder& recorder, Notifier& notifier) {
  AttemptOptions attempt = options.attempt;
  attempt.show_uuids = options.ids == "uuid";
  // A batch gives each child a group of its own, and a detached job has one, too.
  attempt.whole_group = options.event_fd >= 0 || recorder.is_active();
  if (recorder.is_active()) {
    attempt.bounded_output = STDOUT_FILENO;
    attempt.output_limit = TRY(read_configuration()).job_output;
  }
  if (notifier.is_active()) {
    attempt.on_alert = [&notifier](const JobAlert& alert) { notifier.send_alert(alert); };
    attempt.alert_before_end = notifier.alert_times().before_end;
    attempt.alert_idle = notifier.alert_times().idle;
  }
  if (!options.job_spec_file.empty()) attempt.lifeline = STDOUT_FILENO;
  attempt.always_record = options.request->auto_memory || !options.request->job.empty();
  return attempt;
}

// Sends all notifications but `refused`, which the caller sends for an error.
Result<int> run_job(const RunCommandOptions& options, const std::vector<std::string>& command,
                    JobRecorder& recorder, Notifier& notifier) {
  Job job;
  job.command = command;
  std::string ticket;
  std::string sender;
  if (!options.job_spec_file.empty()) {
    RemoteJobSpec job_spec = TRY(read_job_spec(options.job_spec_file));
    if (const auto code = apply_job_spec(job_spec)) return *code;
    job.command = std::move(job_spec.command);
    ticket = std::move(job_spec.ticket);
    sender = std::move(job_spec.sender);
  }
  if (const auto problem = TRY(check_run(options, job))) {
    print_message(problem->message);
    return problem->code;
  }
  if (const auto signal = TRY(wait_for_start(options.start, recorder))) return 128 + *signal;
  const bool remote = is_remote(options);
  job.descriptors = raise_descriptor_limit();
  auto probe = open_driver([] { print_message("waiting for the driver to answer"); });
  if (!probe && !remote) return tl::make_unexpected(probe.error());
  AcquireRequest request = make_run_request(options, job);
  std::optional<Lease> local_lease;  // with --host: this host granted it first
  if (remote) {
    auto outcome =
        TRY(run_on_hosts(options, request, job, probe ? probe->get() : nullptr, recorder));
    if (const int* code = std::get_if<int>(&outcome)) {
      notifier.send_end({*code});
      return *code;
    }
    local_lease = std::move(std::get<Lease>(outcome));
    request.job_id = local_lease->record().job_id;  // of another attempt, too
    request.job_host = local_lease->record().job_host;
  }
  request.replaced_ticket = ticket;
  if (!ticket.empty()) {
    request.job_id = ticket;
    request.job_host = sender;
  }
  request.preferred_id = recorder.id();
  request.no_wait = request.no_wait || !ticket.empty();
  const AttemptOptions attempt_options = TRY(make_attempt_options(options, recorder, notifier));
  const RunEventWriter event_writer(options.event_fd);
  const WaitCallbacks callbacks =
      recorder.is_active() ? recorder.wait_callbacks() : event_writer.wait_callbacks();
  for (unsigned retries_left = options.retries;; --retries_left) {
    auto lease = local_lease
                     ? Result<std::variant<Lease, int>>(*std::exchange(local_lease, std::nullopt))
                     : acquire_with_display(**probe, request, -1, callbacks);
    request.preferred_id.clear();  // another attempt has a lease of its own
    if (!lease) {
      const bool expected =
          !request.replaced_ticket.empty() && lease.error().kind == ErrorKind::not_granted;
      if (expected) return exit_code(ErrorKind::not_granted);  // the sending host goes on waiting
      return tl::make_unexpected(lease.error());
    }
    if (const int* signal = std::get_if<int>(&*lease)) return 128 + *signal;
    if (!request.replaced_ticket.empty()) {
      ::unlink(options.job_spec_file.c_str());  // tells the sending host that the job was granted
      request.replaced_ticket.clear();
      request.no_wait = options.request->no_wait;
    }
    event_writer.write_granted(std::get<Lease>(*lease), request.profile_options);
    recorder.write_granted(std::get<Lease>(*lease), request.profile_options);
    notify_granted(notifier, std::get<Lease>(*lease));
    SignalQueue signals({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD});
    const AttemptResult end =
        run_attempt(**probe, std::move(std::get<Lease>(*lease)), job, attempt_options, signals);
    const bool again = end.ran && !end.interrupted && end.exit_class == ExitClass::out_of_memory &&
                       retries_left > 0 && raise_memory_request(request, end, retries_left == 1);
    if (again) continue;
    if (recorder.is_active()) signals.keep_blocked();  // it still has to record the exit code
    if (retries_left > 0 && may_be_out_of_memory(end)) {
      print_message(
          "the job failed; out-of-memory can only be detected when stderr is a file, so "
          "--retry-oom did not retry (use: berth run ... 2> FILE)");
    }
    event_writer.write_ended(end);
    // A signal before the start came from the user, who knows that the job did not run.
    const bool has_result = end.ran || end.code < kFirstSignalCode;
    if (has_result) notifier.send_end(make_job_result(end));
    (void)probe->release();  // this process exits now, and its helper with it: do not wait for it
    if (attempt_options.always_record && !end.usage.framework.empty())
      print_message(preallocation_hint(end.usage.framework));
    return end.code;
  }
}

Result<int> run(const RunCommandOptions& options, const std::vector<std::string>& command,
                JobRecorder& recorder, Notifier& notifier) {
  if (recorder.is_active()) notifier.set_detached_job(recorder.id(), recorder.path());
  auto result = run_job(options, command, recorder, notifier);
  // The user sees wrong usage at once.
  if (!result && result.error().kind != ErrorKind::usage) notifier.send_refused(result.error());
  return result;
}

Result<int> run_in_foreground(const RunCommandOptions& options,
                              const std::vector<std::string>& command) {
  JobRecorder no_recorder;
  Notifier notifier = TRY(make_notifier(options, command));
  return run(options, command, no_recorder, notifier);
}

Result<int> run_in_background(const RunCommandOptions& options,
                              const std::vector<std::string>& command) {
  Job job;
  job.command = command;
  if (const auto problem = TRY(check_run(options, job))) {
    print_message(problem->message);
    return problem->code;
  }
  Notifier notifier = TRY(make_notifier(options, command));
  JobSpec spec = make_job_spec(JobKind::run, command, options.request->label);
  if (is_remote(options))
    spec.remote_hosts = options.anywhere ? std::vector<std::string>{"any"} : options.hosts;
  return run_detached(std::move(spec), [&](JobRecorder& recorder) {
    return run(options, command, recorder, notifier);
  });
}

Result<void> parse_hosts(std::string_view text, RunCommandOptions& options) {
  options.anywhere = text == "any";
  while (!options.anywhere && !text.empty()) {
    const std::string_view name = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), name.size() + 1));
    if (!is_host_name(name)) {
      return fail(ErrorKind::usage,
                  fmt::format("{} is not a host name; 'berth status --all' lists the hosts",
                              in_quotes(name)));
    }
    options.hosts.emplace_back(name);
  }
  if (options.anywhere || !options.hosts.empty()) return {};
  return fail(ErrorKind::usage, "no host given; name one, or use any");
}

}  // namespace

Action define_run(Flags& command, const CommandContext& context) {
  auto options = std::make_shared<RunCommandOptions>();
  options->request = add_request_flags(command);
  command.add_choice("--ids", "index|uuid",
                     "Form of the GPU ids for the job: index (default) or uuid", options->ids);
  command.add_value("-I", "TEXT", "Replace TEXT in CMD by the indices of the GPUs",
                    [options](std::string_view text) -> Result<void> {
                      if (text.empty())
                        return fail(ErrorKind::usage, "the text is empty; write one, such as -I @");
                      options->attempt.gpu_token = text;
                      return {};
                    });
  command.add_flag("--placeholder", options->attempt.use_placeholder,
                   "Use a little GPU memory until the job does, so that\n"
                   "nvidia-smi shows the GPUs as used");
  command.add_value("--retry-oom", "K",
                    "If the job runs out of GPU memory, run it again with more,\n"
                    "up to K times, the last time alone on its GPUs",
                    [options](std::string_view text) {
                      return parse_bounded_number(text, 1, 100, options->retries);
                    });
  command.add_flag("-d,--detach", options->detach,
                   "Return at once, and run CMD without this terminal; prints the\n"
                   "job's id (berth jobs, logs, wait, cancel)");
  add_start_flags(command, options, options->start);
  add_notify_flag(command, options, options->notify);
  command.set_group("Other hosts (BERTH_URL)");
  command.add_value("--host", "HOST,...",
                    "Run by ssh on the first of these hosts that grants the GPUs;\n"
                    "'any' means the hosts listed in /etc/berth.toml",
                    [options](std::string_view text) { return parse_hosts(text, *options); });
  command.add_repeated_value("--env", "NAME[=VALUE]",
                             "Pass NAME to the remote job; 'PREFIX*' passes all matching\n"
                             "variables, '*' all but host-specific ones. Write secrets as\n"
                             "NAME, since ps may show NAME=VALUE. Repeatable",
                             [options](std::string_view text) -> Result<void> {
                               options->environment.emplace_back(text);
                               return {};
                             });
  command.set_group("");
  command.add_text("--job-spec", "FILE", "Run the job that another host has sent",
                   options->job_spec_file);
  command.add_value("--event-fd", "FD", "Write the events of the run to this descriptor",
                    [options](std::string_view text) {
                      unsigned fd = 0;
                      auto parsed = parse_bounded_number(text, STDERR_FILENO + 1, 1 << 20, fd);
                      options->event_fd = static_cast<int>(fd);
                      return parsed;
                    });
  command.set_group("Options");
  command.add_help_entry("CMD", "...", "Command to run, after --");
  command.require();
  command.set_footer(
      "Waits for its turn, runs CMD on the granted GPUs, and exits with the exit code of CMD. The\n"
      "lease ends when the last process of CMD has ended, however it ended.\n"
      "\nExamples:\n"
      "  berth run -- python train.py\n"
      "  berth run -n 2 --name A6000 --time 4h -- torchrun train.py\n"
      "  berth run --mem 8GiB -- python evaluate.py      share a GPU\n"
      "  berth run --mem auto -- python evaluate.py      share a GPU; berth learns how much\n"
      "  berth run -I @ -- ./simulate --device @\n"
      "  berth run --host any -- python train.py         on the first host with free GPUs\n"
      "  berth run -d -- python train.py                 goes on after you log out\n"
      "\nExit codes: that of CMD (128+N for signal N); 64 wrong usage; 69 no driver, or a request\n"
      "that can never be met; 74 the harbour cannot be used; 75 not granted in time; 126 CMD\n"
      "cannot be run; 127 CMD was not found.");
  return [options, &context]() -> Result<int> {
    options->hides_commands = are_commands_hidden();
    if (!options->detach) return run_in_foreground(*options, context.trailing_command);
    return run_in_background(*options, context.trailing_command);
  };
}

}  // namespace berth
