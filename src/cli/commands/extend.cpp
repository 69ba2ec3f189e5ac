// The command `berth extend ID DURATION`.
#include "lease/extend.h"

#include <chrono>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "base/time_text.h"
#include "cli/command.h"
#include "harbour/harbour.h"
#include "run/job_folder.h"
#include "run/other_hosts.h"

namespace berth {
namespace {

struct ExtendCommandOptions {
  std::string id;
  std::string text;  // of the duration, which parse_duration() accepts
  std::chrono::nanoseconds time{};
  bool json = false;
};

// A detached job that was run again has a lease of another id, and so has a job that another host
// has sent.
Result<std::string> current_lease(const std::string& id) {
  const auto job = find_job(id);
  if (job && job->spec.kind == JobKind::batch) {
    return fail(ErrorKind::usage,
                fmt::format("extend: {} is a batch, and each of its lines has an end of its own; "
                            "name the lease of a line ('berth status --json')",
                            id));
  }
  if (job && !job->grants.empty()) return job->grants.back().lease;
  std::optional<Harbour> harbour = TRY(Harbour::open_existing());
  const auto sent = harbour ? TRY(find_sent_job(*harbour, id)) : std::nullopt;
  return sent ? sent->id : id;
}

// Only processes of its host can change a lease.
Result<Record> extend(const ExtendCommandOptions& options) {
  auto lease = extend_lease(TRY(current_lease(options.id)), options.time);
  if (lease || lease.error().kind != ErrorKind::usage || !is_id(options.id)) return lease;
  for (const RemoteClient& client : TRY(find_remote_clients(options.id))) {
    if (!client.is_lease()) continue;
    return fail(ErrorKind::usage,
                fmt::format("job {0} runs on {1}; extend it there: ssh {1} berth extend {0} {2}",
                            options.id, client.host, options.text));
  }
  return lease;
}

Result<int> run(const ExtendCommandOptions& options) {
  const Record lease = TRY(extend(options));
  if (options.json) {
    print(to_ascii_json({{"id", options.id}, {"ends", format_iso_time(*lease.expected_end())}}, 2) +
          "\n");
    return 0;
  }
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
                      options->text = text;
                      return {};
                    });
  command.require();
  command.add_flag("--json", options->json, "Print JSON (see docs/json.md)");
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
