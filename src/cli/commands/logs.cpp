// The command `berth logs [-f] [-n N] [ID]`.
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/shell.h"
#include "base/terminal.h"
#include "cli/command.h"
#include "cli/request_flags.h"
#include "cluster/remote/forward.h"
#include "run/job_output.h"
#include "run/job_wait.h"

namespace berth {
namespace {

struct LogsCommandOptions {
  std::optional<std::string> id;
  OutputOptions output;
};

Result<int> show_logs(const LogsCommandOptions& options) {
  const auto found = find_detached_job(options.id);
  if (!found && found.error().kind == ErrorKind::usage && options.id) {
    std::vector<std::string> words{"logs"};
    if (options.output.follow) words.emplace_back("--follow");
    if (options.output.lines) words.push_back(fmt::format("--lines={}", *options.output.lines));
    if (const auto code = TRY(forward_job_command(words, *options.id, false))) return *code;
  }
  const DetachedJob job = TRY(found);
  if (job.spec.kind == JobKind::batch && !job.spec.line_logs.empty()) {
    print_message(fmt::format("this is the output of the batch; that of each line is in {}",
                              shell_quote(job.spec.line_logs)));
  }
  const auto stopped_by = TRY(print_job_output(job, options.output));
  return stopped_by ? 128 + *stopped_by : 0;
}

}  // namespace

Action define_logs(Flags& command, const CommandContext& /*context*/) {
  auto options = std::make_shared<LogsCommandOptions>();
  command.add_value("ID", "", "Id of a detached job (default: the last submitted one)",
                    [options](std::string_view text) -> Result<void> {
                      options->id = text;
                      return {};
                    });
  command.add_flag("-f,--follow", options->output.follow,
                   "Print what the job writes, until it ends");
  command.add_value("-n,--lines", "N", "Only the last N lines",
                    [options](std::string_view text) -> Result<void> {
                      constexpr unsigned kMaxLines = 1'000'000'000;
                      unsigned lines = 0;
                      TRY(parse_bounded_number(text, 0, kMaxLines, lines));
                      options->output.lines = lines;
                      return {};
                    });
  command.set_footer(
      "Prints what a job of 'berth run -d' has written to its stdout and stderr, and what berth\n"
      "has said. If there is more than the setting output in [jobs] permits (64MiB), the middle\n"
      "is not kept, and a line on stderr says so.\n"
      "The output of a job that was submitted on another host is read there by ssh.\n"
      "\nExamples:\n"
      "  berth logs\n"
      "  berth logs -f k3f9a2mx\n"
      "  berth logs -n 100 k3f9a2mx | grep loss\n"
      "\nExit codes: 0 done; 64 there is no such detached job; 74 the output cannot be read; 77 "
      "it\n"
      "is another user's.");
  return [options]() { return show_logs(*options); };
}

}  // namespace berth
