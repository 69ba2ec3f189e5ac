// The command `berth release [LEASE|GPU…] [--all]`.
#include <fmt/format.h>
#include <memory>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/gpu_arguments.h"
#include "lease/cancel_and_release.h"
#include "lease/gpu_list.h"

namespace berth {
namespace {

struct ReleaseCommandOptions {
  std::vector<std::string> words;
  bool all = false;
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

// berth cannot change the variables of the shell that called it, so the user must.
void warn_about_stale_environment(const std::string& lease) {
  if (lease.empty() || get_env_or_empty("BERTH_LEASE") != lease) return;
  std::string names;
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "BERTH_GPUS",
                           "BERTH_LEASE", "BERTH_EPOCH"}) {
    if (!get_env_or_empty(name).empty()) names.append(" ").append(name);
  }
  print_message(fmt::format(
      "programs started in this shell still see the released GPUs; run: unset{}", names));
}

Result<int> run(const ReleaseCommandOptions& options) {
  if (options.all && !options.words.empty()) {
    return fail(ErrorKind::usage, "release: name leases or GPUs, or use --all, not both");
  }
  const std::vector<Record> ended = TRY(options.all             ? release_own_leases()
                                        : options.words.empty() ? release_current_lease()
                                                                : release_named(options.words));
  for (const Record& lease : ended) {
    print(fmt::format("lease {} is released\n", lease.id));
    warn_about_stale_environment(lease.id);
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
  command.add_flag("--all", options->all, "Release all leases of your shells");
  command.set_footer(
      "Releases leases that a shell or script got with 'berth acquire'. A lease of 'berth run'\n"
      "ends with its job. Without arguments: the lease that BERTH_LEASE names, otherwise your\n"
      "only lease. If one of several leases cannot be released, none is released. You can release\n"
      "only your own leases; root can release all. The shell keeps the variables that 'berth\n"
      "acquire' has set: the command prints which ones to unset.\n"
      "\nExamples:\n"
      "  berth release\n"
      "  berth release k3f9a2mx\n"
      "  berth release 0 2\n"
      "  berth release --all\n"
      "\nExit codes: 0 done; 64 there is no such lease, or a job holds it; 69 no driver, or no\n"
      "such GPU; 74 the harbour cannot be used; 77 the lease belongs to another user.");
  return [options]() { return run(*options); };
}

}  // namespace berth
