// Declares and parses the flags of `berth batch`; see batch_flags.h.
#include "cli/batch_flags.h"

#include <fmt/format.h>
#include <string_view>

#include "base/quantity.h"
#include "base/text.h"
#include "cli/request_flags.h"

namespace berth {
namespace {

using SharedOptions = std::shared_ptr<BatchCommandOptions>;

// A flag that is passed on to `berth run` unchanged.
void add_run_flag(Flags& command, const SharedOptions& options, const char* flag, const char* type,
                  const char* help, const Flags::ValueParser& validate) {
  command.add_value(flag, type, help, [=](std::string_view text) {
    auto fine = validate(text);
    if (fine) options->run_flags.insert(options->run_flags.end(), {flag, std::string(text)});
    return fine;
  });
}

Flags::ValueParser parse_number_into(const SharedOptions& options,
                                     unsigned BatchCommandOptions::*target, unsigned low,
                                     unsigned high) {
  return [=](std::string_view text) {
    return parse_bounded_number(text, low, high, options.get()->*target);
  };
}

// `target` is a part of `options`.
Flags::ValueParser parse_path_into(const SharedOptions& options, std::string& target) {
  return [options, &target](std::string_view text) -> Result<void> {
    if (text.empty()) return fail(ErrorKind::usage, "the path is empty; write a path");
    target = text;
    return {};
  };
}

Result<std::chrono::nanoseconds> parse_limit(std::string_view text) {
  const std::chrono::nanoseconds time = TRY(parse_duration(text));
  constexpr std::chrono::hours kMaxLimit(24 * 3650);
  if (time == std::chrono::nanoseconds::zero() || time > kMaxLimit) {
    return fail(
        ErrorKind::usage,
        fmt::format("{} is not a usable time limit; write 90s, 1h30m or 2d", in_quotes(text)));
  }
  return time;
}

// How many lines run at once, and what happens when one fails.
void add_line_flags(Flags& command, const SharedOptions& options) {
  constexpr unsigned kMaxJobs = 100'000;
  command.add_value("-j,--jobs", "N", "At most N lines at once, running or waiting for GPUs",
                    [options](std::string_view text) {
                      unsigned number = 0;
                      auto parsed = parse_bounded_number(text, 1, kMaxJobs, number);
                      if (parsed) options->jobs = number;
                      return parsed;
                    });
  command.add_value(
      "--per-gpu", "K",
      "Share each GPU among K lines, instead of --mem: each line\nreserves 1/K of the memory "
      "of the smallest matching GPU",
      parse_number_into(options, &BatchCommandOptions::per_gpu, 1, 100));
  command.add_flag("-k,--keep-going", options->keep_going,
                   "Keep going after a failure (default: finish running lines,\nstart no more)");
  command.add_value("--retries", "R", "Run a failed line again, up to R times",
                    parse_number_into(options, &BatchCommandOptions::retries, 0, 1000));
  command.add_value("--limit", "DURATION",
                    "Stop a line that runs longer, such as 2h, and count it as\nfailed; time in "
                    "the queue does not count",
                    [options](std::string_view text) -> Result<void> {
                      options->limit = TRY(parse_limit(text));
                      return {};
                    });
}

void add_detach_flags(Flags& command, const SharedOptions& options) {
  command.add_flag("-d,--detach", options->detach,
                   "Return at once, and run the batch without this terminal;\n"
                   "prints its id (berth jobs, logs, wait, cancel)");
  add_start_flags(command, options, options->start);
  add_notify_flag(command, options, options->notify);
  command.add_flag("--notify-lines", options->notify_lines,
                   "With --notify: notify of each line, too");
}

void add_log_flags(Flags& command, const SharedOptions& options) {
  command.add_value("--logs", "DIR",
                    "Folder for the output of each line (default for jobs.txt:\njobs.logs)",
                    parse_path_into(options, options->logs));
  command.add_value("--joblog", "FILE",
                    "File that records finished lines (default: DIR/joblog.jsonl)",
                    parse_path_into(options, options->joblog));
  command.add_flag(
      "--resume", options->resume,
      "Continue an earlier batch: skip the lines that have\nsucceeded according to its joblog");
  command.add_flag("--restart", options->restart,
                   "Run all lines, although an earlier batch is unfinished");
  command.add_flag("--dry-run", options->dry_run, "Print the lines that would run, and run none");
  command.add_flag("--in-order", options->in_order,
                   "With --mem auto, keep file order instead of largest first");
}

void add_run_flags(Flags& command, const SharedOptions& options) {
  add_run_flag(command, options, "-I", "TEXT",
               "Replace TEXT in each line by the indices of its GPUs",
               [options](std::string_view text) -> Result<void> {
                 if (text.empty())
                   return fail(ErrorKind::usage, "the text is empty; write one, such as -I @");
                 options->replaces_braces = text == "{}";
                 return {};
               });
  add_run_flag(command, options, "--ids", "index|uuid",
               "Form of the GPU ids for each line: index (default) or uuid",
               [](std::string_view text) -> Result<void> {
                 if (text == "index" || text == "uuid") return {};
                 return fail(ErrorKind::usage,
                             fmt::format("{} is not one of index and uuid", in_quotes(text)));
               });
  add_run_flag(
      command, options, "--retry-oom", "K",
      "If a line runs out of GPU memory, run it again with more,\nup to K times, the last time "
      "on exclusive GPUs",
      [](std::string_view text) {
        unsigned number = 0;
        return parse_bounded_number(text, 1, 100, number);
      });
}

// Flags that help does not show: the batch refuses them, or understands them in this version only.
void add_hidden_flags(Flags& command, const SharedOptions& options) {
  command.set_group("");
  command.add_flag("--no-wait", options->no_wait, "");
  command.add_value("--timeout", "DURATION", "", [options](std::string_view text) -> Result<void> {
    options->old_limit = TRY(parse_limit(text));
    return {};
  });
  command.set_group("Options");
}

}  // namespace

std::shared_ptr<BatchCommandOptions> add_batch_flags(Flags& command) {
  auto options = std::make_shared<BatchCommandOptions>();
  options->request = add_request_flags(command, WaitLimits::none);
  command.add_value(
      "FILE", "",
      "File with one command per line, or - for stdin; without FILE,\nthe commands follow --",
      [options](std::string_view text) -> Result<void> {
        if (text.empty()) return fail(ErrorKind::usage, "the path is empty; write a path");
        options->source.arguments.emplace_back(text);
        return {};
      });
  command.add_value("--csv", "FILE",
                    "Run the command behind -- for each row of a CSV file, with\n{NAME} replaced "
                    "by the value of the column NAME",
                    parse_path_into(options, options->source.csv));
  command.collect_extra_arguments(options->source.arguments);
  add_line_flags(command, options);
  add_log_flags(command, options);
  add_run_flags(command, options);
  add_detach_flags(command, options);
  add_hidden_flags(command, options);
  command.set_foreign_flag_remedy(
      "for one command write berth run -- COMMAND, for several berth batch -- 'COMMAND' 'COMMAND'");
  command.set_footer(
      "Runs each line of FILE in a shell, on GPUs of its own, as soon as they are granted. Blank\n"
      "lines and lines that begin with # are skipped. Few lines wait in the queue at any time, so\n"
      "that other users get their turn.\n"
      "\nCtrl-C stops the batch: running lines get SIGTERM, and SIGKILL after a second Ctrl-C.\n"
      "--resume continues later.\n"
      "\nA command followed by ::: and values runs once for each value, and with several ::: once\n"
      "for each combination. {} is replaced by the value ({} and {}, or {1} and {2}, by the first\n"
      "and the second). Each value is quoted: it is one argument, whatever it contains.\n"
      "\nExamples:\n"
      "  berth batch jobs.txt                            each line alone on a GPU\n"
      "  berth batch --mem auto -k jobs.txt              share GPUs; berth learns how much\n"
      "  berth batch --per-gpu 3 --retries 2 jobs.txt    three lines on each GPU\n"
      "  berth batch --resume jobs.txt                   continue after Ctrl-C or a reboot\n"
      "  berth batch -d jobs.txt                         goes on after you log out\n"
      "  berth batch -n 2 --limit 4h -j 3 jobs.txt       two GPUs each, three lines at once\n"
      "  seq 9 | sed 's/^/.\\/simulate --device @ --seed /' | berth batch -I @ -\n"
      "  berth batch -- 'python a.py' 'python b.py --fast'\n"
      "  berth batch -- 'python train.py --lr {} --seed {}' ::: 1e-3 1e-4 ::: 1 2 3\n"
      "  berth batch --csv runs.csv -- 'python train.py --lr {lr} --seed {seed}'\n"
      "\nExit codes: 0 all lines succeeded; 1 some failed; 64 wrong usage; 69 no driver, or a "
      "request\n"
      "that can never be met; 74 the harbour or the logs cannot be used; 128+N ended by signal N.");
  return options;
}

}  // namespace berth
