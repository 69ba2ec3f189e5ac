// The command `berth extend ID DURATION`.
#include "lease/extend.h"

#include <chrono>
#include <fmt/format.h>
#include <memory>
#include <string>

#include "base/quantity.h"
#include "base/terminal.h"
#include "base/time_text.h"
#include "cli/command.h"
#include "run/job_folder.h"

namespace berth {
namespace {

struct ExtendCommandOptions {
  std::string id;
  std::chrono::nanoseconds time{};
};

// A detached job that was run again has a lease of another id.
std::string current_lease(const std::string& id) {
  const auto job = find_job(id);
  return job && !job->grants.empty() ? job->grants.back().lease : id;
}

Result<int> run(const ExtendCommandOptions& options) {
  const Record lease = TRY(extend_lease(current_lease(options.id), options.time));
  print(fmt::format("job {} ends at {}, as announced\n", options.id,
                    format_local_time(*lease.expected_end())));
  return 0;
}

}  // namespace

Action define_extend(Flags& command, const CommandContext& /*context*/) {
  auto options = std::make_shared<ExtendCommandOptions>();
  command.add_text("ID", "", "Id of the job or lease, as 'berth jobs' shows it", options->id);
  command.require();
  command.add_value("DURATION", "", "How much later it ends, such as 2h",
                    [options](std::string_view text) -> Result<void> {
                      options->time = TRY(parse_duration(text));
                      return {};
                    });
  command.require();
  command.set_footer(
      "Moves the announced end (--time) of a running job of yours, or announces one. Other users "
      "see\n"
      "it in 'berth status' and 'berth queue', and the expected starts of waiting jobs follow.\n"
      "\nExample:\n"
      "  berth extend k3f9a2mx 2h\n"
      "\nExit codes: 0 done; 64 there is no such job; 74 the harbour cannot be used; 77 the job\n"
      "belongs to another user.");
  return [options]() { return run(*options); };
}

}  // namespace berth
