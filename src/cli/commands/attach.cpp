// The command `berth attach [ID]`.
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cli/command.h"
#include "cluster/remote/forward.h"
#include "run/job_attach.h"
#include "run/job_wait.h"

namespace berth {
namespace {

Result<int> attach(const std::optional<std::string>& id) {
  const auto job = find_detached_job(id);
  if (!job && job.error().kind == ErrorKind::usage && id) {
    if (const auto code = TRY(forward_job_command({"attach"}, *id, true))) return *code;
  }
  return attach_to_job(TRY(job));
}

}  // namespace

Action define_attach(Flags& command, const CommandContext& /*context*/) {
  auto id = std::make_shared<std::optional<std::string>>();
  command.add_value("ID", "", "Id of a detached job (default: the last submitted one)",
                    [id](std::string_view text) -> Result<void> {
                      *id = text;
                      return {};
                    });
  command.set_footer(
      "Shows the last lines of the job's output and then what it writes, until it ends. Ctrl-C\n"
      "detaches, and the job goes on. Ctrl-\\ ends the job: SIGTERM to all of its processes.\n"
      "A job that was submitted on another host is attached to there, by ssh.\n"
      "\nExamples:\n"
      "  berth run -d -- python train.py\n"
      "  berth attach\n"
      "\nExit codes: that of the job (128+N for signal N); 0 after Ctrl-C; 64 there is no such\n"
      "detached job; 70 the job's exit code is unknown; 77 it is another user's.");
  return [id]() { return attach(*id); };
}

}  // namespace berth
