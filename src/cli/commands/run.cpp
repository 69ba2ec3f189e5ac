// berth run [REQUEST] -- CMD…
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/descriptors.h"
#include "broker/acquire.h"
#include "broker/archiving.h"
#include "broker/holders.h"
#include "broker/job_environment.h"
#include "cli/command.h"
#include "cli/job.h"
#include "cli/output/terminal.h"
#include "cli/output/wait_display.h"
#include "cli/request_options.h"
#include "devices/driver.h"
#include "devices/placeholder.h"

namespace berth {
namespace {

struct Options {
  std::shared_ptr<RequestOptions> request;
  std::string ids = "index";
  std::string replace;
  bool placeholder = false;
};

// For people: the words with blanks between them. On a host that hides processes from other users
// (hidepid), only the program's name: `ps` would not show them more.
std::string command_text(const std::vector<std::string>& words) {
  if (::access("/proc/1/cmdline", R_OK) != 0) return words.front();
  std::string text;
  for (const std::string& word : words) text.append(text.empty() ? "" : " ").append(word);
  return text;
}

// When the job's main process has ended but others of it still hold the lease.
void say_lease_stays(const Lease& lease) {
  const auto holders = bell_holders(lease.record());
  say(fmt::format("the lease {} stays until {} ended", lease.id(),
                  holders.empty()
                      ? "the processes that the job left behind have"
                      : fmt::format("{} {}", holders,
                                    holders.find(',') == std::string::npos ? "has" : "have")));
}

Result<int> run_on(Lease lease, const Options& options, Job job, SignalQueue& signals) {
  const IdForm form = options.ids == "uuid" ? IdForm::uuid : IdForm::index;
  job.environment = job_environment(lease.host_gpus(), lease.record().uuids, form, lease.id());
  if (!options.replace.empty()) {
    job.command = with_gpus(job.command, options.replace,
                            index_list(lease.host_gpus(), lease.record().uuids));
  }
  std::optional<Placeholders> placeholders;
  if (options.placeholder) {
    auto held = Placeholders::start(lease.record().uuids);
    if (held) {
      placeholders = std::move(*held);
    } else {
      say(held.error().message);  // the job runs without it
    }
  }
  // Ctrl-C reaches who is there: no job yet, which could obey it.
  while (const auto signal = signals.next()) {
    if (signal->ssi_signo == SIGCHLD) continue;
    placeholders.reset();
    lease.release();
    return 128 + static_cast<int>(signal->ssi_signo);
  }
  const auto started = start_job(job, lease, signals);
  if (const auto* problem = std::get_if<NoSuchProgram>(&started)) {
    lease.release();
    say(problem->message);
    return problem->code;
  }
  const auto record = [&lease](Ending ending, int code) {
    (void)archive(lease.harbour().location(),
                  history_entry(lease.record(), lease.host_gpus(), ending, code));
  };
  const int status = supervise(std::get<pid_t>(started), lease, signals,
                               {say, [&record] { record(Ending::running, 0); }});
  placeholders.reset();
  if (!lease.release()) say_lease_stays(lease);
  if (WIFSIGNALED(status)) {
    record(Ending::killed, WTERMSIG(status));
  } else {
    record(Ending::exited, WEXITSTATUS(status));
  }
  return exit_code(status);
}

Result<int> run(const Options& options) {
  Job job;
  job.command = words_to_run();
  if (job.command.empty()) {
    return fail(ErrorKind::usage,
                "run: no command; say what to run, such as: berth run -- python train.py");
  }
  if (const auto problem = check_program(job.command.front())) {
    say(problem->message);
    return problem->code;
  }
  job.descriptors = allow_many_descriptors();
  auto probe = open_driver([] { say("waiting for the driver to answer"); });
  if (!probe) return tl::make_unexpected(probe.error());
  Ask ask = make_ask(*options.request);
  ask.command = command_text(job.command);
  auto lease = wait_for(**probe, std::move(ask));
  if (!lease) return tl::make_unexpected(lease.error());
  if (const int* signal = std::get_if<int>(&*lease)) return 128 + *signal;
  (*probe)->rest();
  SignalQueue signals({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD});
  return run_on(std::move(std::get<Lease>(*lease)), options, std::move(job), signals);
}

}  // namespace

Action define_run(Flags& command, CLI::App& /*program*/) {
  auto options = std::make_shared<Options>();
  options->request = add_request_options(command);
  command.choice("--ids", "index|uuid", "How the job sees its GPUs: index (default) or uuid",
                 options->ids);
  command.value("-I", "TEXT", "Replace TEXT in CMD by the indices of the GPUs",
                [options](std::string_view text) -> Result<void> {
                  if (text.empty()) return fail(ErrorKind::usage, "it needs a text, such as -I @");
                  options->replace = text;
                  return {};
                });
  command.flag("--placeholder", options->placeholder,
               "Take a little memory on the GPUs until the job uses them, for\n"
               "neighbours who only look at nvidia-smi");
  command.mention("CMD", "...", "What to run, behind --");
  command.footer(
      "Waits its turn, runs CMD on the GPUs it was given, and passes its exit code on. The GPUs "
      "are\n"
      "CMD's until its last process has ended, however it ends.\n"
      "\nExamples:\n"
      "  berth run -- python train.py\n"
      "  berth run -n 2 --name A6000 --time 4h -- torchrun train.py\n"
      "  berth run --mem 8GiB -- python evaluate.py      share a GPU\n"
      "  berth run -I @ -- ./simulate --device @\n"
      "\nExit codes: CMD's own (128+N for signal N); 64 wrong usage; 69 no driver, or a request "
      "that\n"
      "can never be met; 74 the harbour cannot be used; 75 not granted in time; 126, 127 CMD "
      "cannot\n"
      "be run, or was not found.");
  return [options]() { return run(*options); };
}

}  // namespace berth
