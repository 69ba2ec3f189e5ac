// berth run [REQUEST] -- CMD…
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
#include "base/terminal.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/request_flags.h"
#include "cluster/remote/remote_job_spec.h"
#include "cluster/remote/remote_run.h"
#include "devices/driver.h"
#include "lease/acquire.h"
#include "profile/job_type.h"
#include "run/attempt.h"
#include "run/job.h"
#include "run/run_event_writer.h"
#include "run/wait_display.h"

namespace berth {
namespace {

struct Options {
  std::shared_ptr<RequestOptions> request;
  std::string ids = "index";
  AttemptOptions attempt;
  unsigned retries = 0;            // after it ran out of memory
  bool anywhere = false;           // on any host of the harbour
  std::vector<std::string> hosts;  // or on one of these; both unset: here
  std::vector<std::string> environment;
  std::string parcel;  // what another host has sent us; see cluster/remote/remote_job_spec.h
  int tell = -1;       // where to tell what happens, for who has called us
};

AcquireRequest ask_for(const Options& options, const Job& job) {
  const RequestOptions& request = *options.request;
  AcquireRequest ask = make_acquire_request(request);
  const bool hidden = commands_are_hidden();
  ask.command = public_command(job.command, hidden);
  const unsigned count = ask.request.count;
  const JobType type = request.job.empty() ? derive_type(job.command, count, hidden)
                                           : named_type(request.job, count);
  ask.learning = Learning{type.name, request.learned, !request.request.time};
  return ask;
}

// Has it ask for more than what did not suffice; for the last time, for GPUs of its own. False if
// there is no more to be had.
bool ask_for_more(AcquireRequest& ask, const AttemptEnd& end, bool last) {
  if (!end.reserved) return false;
  const Bytes more = more_than(std::max(*end.reserved, end.usage.peak().value_or(Bytes{})));
  ask.learning->at_least = more;
  ask.learning->alone = last;
  say(fmt::format("it ran out of memory with {}; trying again with {}", format_size(*end.reserved),
                  last ? "a GPU of its own"
                       : fmt::format("{}, or a whole GPU where that is less", format_size(more))));
  return true;
}

// It failed on a share of a GPU, and what it said about that nobody has read.
bool perhaps_out_of_memory(const AttemptEnd& end) {
  return end.ran && !end.interrupted && end.code != 0 && end.reserved && !end.words_known &&
         end.verdict == ExitClass::failure;
}

// Makes this process what it would be where the parcel comes from. An exit code if it cannot.
std::optional<int> unpack(const RemoteJobSpec& parcel) {
  constexpr int kNotRunnable = 126;
  for (const auto& [name, value] : parcel.environment) {
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  const auto here = harbour_location();
  if (here.host != parcel.host) {
    say(fmt::format("this host is called {} in the harbour, and was taken for {}; see BERTH_HOST",
                    in_quotes(here.host), in_quotes(parcel.host)));
    return exit_code(ErrorKind::usage);
  }
  if (::chdir(parcel.directory.c_str()) != 0) {
    say(fmt::format("{} cannot go to the directory {}: {}", here.host, in_quotes(parcel.directory),
                    std::strerror(errno)));
    return kNotRunnable;
  }
  return std::nullopt;
}

bool is_elsewhere(const Options& options) {
  if (options.anywhere) return true;
  if (options.hosts.empty()) return false;
  return options.hosts != std::vector{harbour_location().host};
}

// The flags that `berth run` on another host is to have.
std::vector<std::string> flags_for_elsewhere(const Options& options) {
  std::vector<std::string> flags;
  for (const std::string& word : options.request->words) {
    if (!word.starts_with("--timeout=")) flags.push_back(word);
  }
  flags.push_back(fmt::format("--ids={}", options.ids));
  if (!options.attempt.replace.empty()) {
    flags.insert(flags.end(), {"-I", options.attempt.replace});
  }
  if (options.attempt.placeholder) flags.emplace_back("--placeholder");
  if (options.retries > 0) flags.push_back(fmt::format("--retry-oom={}", options.retries));
  return flags;
}

// The hosts to which the job and its secrets may go. Every client of Redis can make a host's name
// appear there: so names come from the user, or from a list that the site or the user wrote.
Result<std::vector<std::string>> permitted_hosts(const Options& options, const std::string& here) {
  auto settings = site();
  if (!settings) return tl::make_unexpected(settings.error());
  if (!settings->hosts) {
    if (!options.anywhere) return options.hosts;
    return fail(ErrorKind::usage,
                fmt::format("run: --host any needs a list of the hosts that jobs may go to; write "
                            "hosts = [\"NAME\", \"NAME\"] into {}, or name the hosts",
                            site_file()));
  }
  if (options.anywhere) return std::move(*settings->hosts);
  for (const std::string& name : options.hosts) {
    const auto& listed = *settings->hosts;
    if (name == here || std::find(listed.begin(), listed.end(), name) != listed.end()) continue;
    return fail(ErrorKind::usage, fmt::format("run: --host {}: it is not among the hosts in {}",
                                              name, printable(settings->hosts_source)));
  }
  return options.hosts;
}

// The exit code of a job elsewhere, or a lease of this host.
Result<std::variant<int, Lease>> run_on_hosts(const Options& options, AcquireRequest ask, const Job& job,
                                              Probe* probe) {
  if (ask.harbour.wrong) return tl::make_unexpected(*ask.harbour.wrong);
  if (!ask.harbour.url) {
    return fail(ErrorKind::usage,
                "run: --host needs a harbour of several hosts; set BERTH_URL (docs/redis.md)");
  }
  auto hosts = permitted_hosts(options, ask.harbour.host);
  if (!hosts) return tl::make_unexpected(hosts.error());
  auto environment = chosen_environment(options.environment);
  if (!environment) return tl::make_unexpected(environment.error());
  ask.within.clear();  // a lease of this host says nothing of others
  ask.visible_devices.reset();
  return run_elsewhere(ask,
                       {std::move(*hosts), options.anywhere, std::move(*environment),
                        flags_for_elsewhere(options), job.command},
                       probe);
}

Result<int> run(const Options& options) {
  Job job;
  job.command = words_to_run();
  std::string ticket;
  if (!options.parcel.empty()) {
    auto parcel = open_parcel(options.parcel);
    if (!parcel) return tl::make_unexpected(parcel.error());
    if (const auto code = unpack(*parcel)) return *code;
    job.command = std::move(parcel->command);
    ticket = std::move(parcel->ticket);
  }
  if (job.command.empty()) {
    return fail(ErrorKind::usage,
                "run: no command; say what to run, such as: berth run -- python train.py");
  }
  const bool elsewhere = is_elsewhere(options);
  if (!elsewhere && !options.environment.empty()) {
    return fail(ErrorKind::usage, "run: --env is for --host; here the job has your environment");
  }
  const auto problem = elsewhere ? std::nullopt : check_program(job.command.front());
  if (problem) {
    say(problem->message);
    return problem->code;
  }
  job.descriptors = allow_many_descriptors();
  auto probe = open_driver([] { say("waiting for the driver to answer"); });
  if (!probe && !elsewhere) return tl::make_unexpected(probe.error());
  AcquireRequest ask = ask_for(options, job);
  std::optional<Lease> first;  // of this host, which was the first of several
  if (elsewhere) {
    auto found = run_on_hosts(options, ask, job, probe ? probe->get() : nullptr);
    if (!found) return tl::make_unexpected(found.error());
    if (const int* code = std::get_if<int>(&*found)) return *code;
    first = std::move(std::get<Lease>(*found));
  }
  ask.instead_of = ticket;
  ask.no_wait = ask.no_wait || !ticket.empty();
  AttemptOptions how = options.attempt;
  how.uuids = options.ids == "uuid";
  how.whole_group = options.tell >= 0;  // a batch gives each of its children one
  if (!options.parcel.empty()) how.lifeline = STDOUT_FILENO;
  how.teaches = options.request->learned || !options.request->job.empty();
  const RunEventWriter teller(options.tell);
  for (unsigned left = options.retries;; --left) {
    auto lease = first ? Result<std::variant<Lease, int>>(*std::exchange(first, std::nullopt))
                       : wait_for(**probe, ask, -1, teller.show());
    if (!lease) {
      const bool expected = !ask.instead_of.empty() && lease.error().kind == ErrorKind::not_granted;
      if (expected) return exit_code(ErrorKind::not_granted);  // who has sent us waits on
      return tl::make_unexpected(lease.error());
    }
    if (const int* signal = std::get_if<int>(&*lease)) return 128 + *signal;
    if (!ask.instead_of.empty()) {
      ::unlink(options.parcel.c_str());  // by which the sender knows
      ask.instead_of.clear();
      ask.no_wait = options.request->no_wait;
    }
    teller.granted(std::get<Lease>(*lease));
    SignalQueue signals({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD});
    const AttemptEnd end = attempt(**probe, std::move(std::get<Lease>(*lease)), job, how, signals);
    const bool again = end.ran && !end.interrupted && end.verdict == ExitClass::out_of_memory &&
                       left > 0 && ask_for_more(ask, end, left == 1);
    if (again) continue;
    if (left > 0 && perhaps_out_of_memory(end)) {
      say("it failed, and from a terminal or pipe nobody can tell whether for want of memory, so "
          "--retry-oom has not run it again; put its output into a file: berth run ... 2> FILE");
    }
    teller.ended(end);
    (void)probe->release();  // this process ends, and its helper with it: nobody need wait for that
    if (how.teaches && !end.usage.framework.empty()) say(hint_for(end.usage.framework));
    return end.code;
  }
}

Result<void> take_hosts(std::string_view text, Options& options) {
  options.anywhere = text == "any";
  while (!options.anywhere && !text.empty()) {
    const std::string_view name = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), name.size() + 1));
    if (!is_host_name(name)) {
      return fail(ErrorKind::usage,
                  fmt::format("{} is no name of a host; see berth status --all", in_quotes(name)));
    }
    options.hosts.emplace_back(name);
  }
  if (options.anywhere || !options.hosts.empty()) return {};
  return fail(ErrorKind::usage, "it needs a name, or any");
}

}  // namespace

Action define_run(Flags& command, CLI::App& /*program*/) {
  auto options = std::make_shared<Options>();
  options->request = add_request_flags(command);
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
  command.group("Other hosts (BERTH_URL)");
  command.value("--host", "HOST,...",
                "Run on whichever of these hosts has the GPUs first, by ssh;\n"
                "'any' for those listed in /etc/berth.toml",
                [options](std::string_view text) { return take_hosts(text, *options); });
  command.several("--env", "NAME[=VALUE]",
                  "Pass a variable to the job there; 'PREFIX*' passes all that\n"
                  "match, '*' all but host-specific ones; for a secret use NAME,\n"
                  "since ps may show NAME=VALUE. Repeatable",
                  [options](std::string_view text) -> Result<void> {
                    options->environment.emplace_back(text);
                    return {};
                  });
  command.group("");
  command.value("--parcel", "FILE", "Run what another host has sent",
                [options](std::string_view text) {
                  options->parcel = text;
                  return Result<void>{};
                });
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
      "  berth run --host any -- python train.py         wherever GPUs are free first\n"
      "\nExit codes: CMD's own (128+N for signal N); 64 wrong usage; 69 no driver, or a request "
      "that\n"
      "can never be met; 74 the harbour cannot be used; 75 not granted in time; 126, 127 CMD "
      "cannot\n"
      "be run, or was not found.");
  return [options]() { return run(*options); };
}

}  // namespace berth
