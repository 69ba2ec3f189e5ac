// The command `berth release [LEASE|GPU…] [--all]`, whose output is for eval, as that of acquire.
#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/json.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/gpu_arguments.h"
#include "lease/cancel_and_release.h"
#include "lease/gpu_list.h"
#include "lease/job_environment.h"
#include "run/lease_owner.h"

namespace berth {
namespace {

struct ReleaseCommandOptions {
  std::vector<std::string> words;
  bool all = false;
  bool json = false;
};

// Releases the leases that the words name, by the lease's id or by a GPU.
Result<std::vector<Record>> release_named(const std::vector<std::string>& words) {
  std::vector<std::string> ids;
  std::vector<std::string> gpus;
  for (const std::string& word : words) {
    if (!is_id(word) && !parse_gpu_list(word)) {
      return fail(ErrorKind::usage,
                  fmt::format("{} is neither a lease nor a GPU; 'berth status' shows both",
                              in_quotes(word)));
    }
    (is_id(word) ? ids : gpus).push_back(word);
  }
  if (gpus.empty()) return release_leases(ids, {});
  return release_leases(ids, TRY(find_gpus(gpus)));
}

Result<std::vector<Record>> release_own_lease() {
  const auto shell = find_lease_owner(std::nullopt);
  return release_current_lease(shell ? shell->pid : 0);
}

// The command that removes the variables of an ended lease from the shell that called; empty if
// they are those of another lease. berth itself cannot change the variables of its caller.
std::string format_unset_command(const std::vector<Record>& ended, bool had_ended_before) {
  const std::string_view lease = get_env_or_empty("BERTH_LEASE");
  const bool has_ended =
      had_ended_before ||
      std::any_of(ended.begin(), ended.end(), [&](const Record& one) { return one.id == lease; });
  if (lease.empty() || !has_ended) return "";
  std::string command = "unset";
  for (const char* name : kLeaseVariables) {
    if (!get_env_or_empty(name).empty()) command.append(" ").append(name);
  }
  return command;
}

Result<int> run(const ReleaseCommandOptions& options) {
  if (options.all && !options.words.empty()) {
    return fail(ErrorKind::usage, "release: name leases or GPUs, or use --all, not both");
  }
  const std::vector<Record> ended = TRY(options.all             ? release_own_leases()
                                        : options.words.empty() ? release_own_lease()
                                                                : release_named(options.words));
  if (options.json) {
    Json ids = Json::array();
    for (const Record& lease : ended) ids.push_back(lease.id);
    print(to_ascii_json({{"leases", std::move(ids)}}, 2) + "\n");
    return 0;
  }
  for (const Record& lease : ended) print_message(fmt::format("lease {} is released", lease.id));
  const bool had_ended_before = ended.empty() && !options.all;  // the lease of BERTH_LEASE
  const std::string unset = format_unset_command(ended, had_ended_before);
  if (!unset.empty() && ::isatty(STDOUT_FILENO) == 0) {
    print(unset + '\n');
  } else if (!unset.empty()) {
    print_message(
        fmt::format("programs started in this shell still see the released GPUs; run: {}", unset));
  }
  if (ended.empty()) {
    print_message(options.all ? std::string("your shells hold no lease")
                              : fmt::format("lease {} has ended already",
                                            printable(get_env_or_empty("BERTH_LEASE"))));
  }
  return 0;
}

}  // namespace

Action define_release(Flags& command, const CommandContext& /*context*/) {
  auto options = std::make_shared<ReleaseCommandOptions>();
  command.add_positionals("LEASE|GPU", "Leases by id; a GPU means all leases of your shells on it",
                          options->words);
  command.add_flag("-a,--all", options->all, "Release all leases of your shells");
  command.add_flag("--json", options->json,
                   "Print JSON (see docs/json.md) instead of the 'unset' command");
  command.set_footer(
      "Releases leases that a shell or script got with 'berth acquire'. A lease of 'berth run'\n"
      "ends with its job. Without arguments: the lease that BERTH_LEASE names, otherwise that\n"
      "of this shell, otherwise your only lease. If one of several leases cannot be released, "
      "none\n"
      "is released. You can release only your own leases; root can release all.\n"
      "\nIf stdout is not a terminal, the command prints the 'unset' command that removes the\n"
      "variables of 'berth acquire', for eval.\n"
      "\nExamples:\n"
      "  eval \"$(berth release)\"\n"
      "  berth release\n"
      "  berth release k3f9a2mx\n"
      "  berth release 0 2\n"
      "  berth release --all\n"
      "\nExit codes: 0 done; 64 there is no such lease, or a job holds it; 69 no driver, or no\n"
      "such GPU; 74 the harbour cannot be used; 77 the lease belongs to another user.");
  return [options]() { return run(*options); };
}

}  // namespace berth
