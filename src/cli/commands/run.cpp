// berth run [REQUEST] -- CMD…
#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include "base/descriptors.h"
#include "broker/acquire.h"
#include "broker/job_type.h"
#include "cli/attempt.h"
#include "cli/command.h"
#include "cli/job.h"
#include "cli/output/terminal.h"
#include "cli/output/wait_display.h"
#include "cli/request_options.h"
#include "cli/run_teller.h"
#include "devices/driver.h"

namespace berth {
namespace {

struct Options {
  std::shared_ptr<RequestOptions> request;
  std::string ids = "index";
  AttemptOptions attempt;
  unsigned retries = 0;  // after it ran out of memory
  int tell = -1;         // where to tell what happens, for who has called us
};

// For people: the words with blanks between them. On a host that hides processes from other users
// (hidepid), only the program's name: `ps` would not show them more.
std::string command_text(const std::vector<std::string>& words) {
  if (::access("/proc/1/cmdline", R_OK) != 0) return words.front();
  std::string text;
  for (const std::string& word : words) text.append(text.empty() ? "" : " ").append(word);
  return text;
}

Ask ask_for(const Options& options, const Job& job) {
  const RequestOptions& request = *options.request;
  Ask ask = make_ask(request);
  ask.command = command_text(job.command);
  const unsigned count = ask.request.count;
  const JobType type =
      request.job.empty() ? derive_type(job.command, count) : named_type(request.job, count);
  ask.learning = Learning{type.name, request.learned, !request.request.time};
  return ask;
}

// Has it ask for more than what did not suffice; for the last time, for GPUs of its own. False if
// there is no more to be had.
bool ask_for_more(Ask& ask, const AttemptEnd& end, bool last) {
  if (!end.reserved) return false;
  const Bytes more = more_than(std::max(*end.reserved, end.usage.peak().value_or(Bytes{})));
  ask.learning->at_least = more;
  ask.learning->alone = last;
  say(fmt::format("it ran out of memory with {}; trying again with {}", format_size(*end.reserved),
                  last ? "a GPU of its own"
                       : fmt::format("{}, or a whole GPU where that is less", format_size(more))));
  return true;
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
  Ask ask = ask_for(options, job);
  AttemptOptions how = options.attempt;
  how.uuids = options.ids == "uuid";
  how.whole_group = options.tell >= 0;  // a batch gives each of its children one
  how.teaches = options.request->learned || !options.request->job.empty();
  if (options.request->learned) how.attention = Attention::learning;
  const RunTeller teller(options.tell);
  for (unsigned left = options.retries;; --left) {
    auto lease = wait_for(**probe, ask, -1, teller.show());
    if (!lease) return tl::make_unexpected(lease.error());
    if (const int* signal = std::get_if<int>(&*lease)) return 128 + *signal;
    teller.granted(std::get<Lease>(*lease));
    SignalQueue signals({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD});
    const AttemptEnd end = attempt(**probe, std::move(std::get<Lease>(*lease)), job, how, signals);
    const bool again = end.ran && !end.interrupted && end.verdict == Verdict::out_of_memory &&
                       left > 0 && ask_for_more(ask, end, left == 1);
    if (again) continue;
    teller.ended(end);
    (void)probe->release();  // this process ends, and its helper with it: nobody need wait for that
    if (how.teaches && !end.usage.framework.empty()) say(hint_for(end.usage.framework));
    return end.code;
  }
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
                  options->attempt.replace = text;
                  return {};
                });
  command.flag("--placeholder", options->attempt.placeholder,
               "Take a little memory on the GPUs until the job uses them, for\n"
               "neighbours who only look at nvidia-smi");
  command.value(
      "--retry-oom", "K",
      "If it runs out of GPU memory, run it again with more, up to\n"
      "K times, the last time alone",
      [options](std::string_view text) { return take_number(text, 1, 100, options->retries); });
  command.group("");
  command.value("--tell", "FD", "Tell what happens there", [options](std::string_view text) {
    unsigned fd = 0;
    auto taken = take_number(text, STDERR_FILENO + 1, 1 << 20, fd);
    options->tell = static_cast<int>(fd);
    return taken;
  });
  command.group("Options");
  command.mention("CMD", "...", "What to run, behind --");
  command.footer(
      "Waits its turn, runs CMD on the GPUs it was given, and passes its exit code on. The GPUs "
      "are\n"
      "CMD's until its last process has ended, however it ends.\n"
      "\nExamples:\n"
      "  berth run -- python train.py\n"
      "  berth run -n 2 --name A6000 --time 4h -- torchrun train.py\n"
      "  berth run --mem 8GiB -- python evaluate.py      share a GPU\n"
      "  berth run --mem auto -- python evaluate.py      the same; berth learns how much\n"
      "  berth run -I @ -- ./simulate --device @\n"
      "\nExit codes: CMD's own (128+N for signal N); 64 wrong usage; 69 no driver, or a request "
      "that\n"
      "can never be met; 74 the harbour cannot be used; 75 not granted in time; 126, 127 CMD "
      "cannot\n"
      "be run, or was not found.");
  return [options]() { return run(*options); };
}

}  // namespace berth
