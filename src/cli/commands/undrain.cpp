// berth undrain GPU… | --all
#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <vector>

#include "base/terminal.h"
#include "cli/command.h"
#include "cli/gpu_arguments.h"
#include "lease/drain.h"
#include "lease/gpu_selection.h"

namespace berth {
namespace {

struct UndrainCommandOptions {
  std::vector<std::string> gpus;
  bool all = false;
};

// A drained GPU as it was named, and its UUID.
struct DrainedGpu {
  std::string name;
  std::string uuid;
};

// By their UUIDs, GPUs are found among those that are drained: the driver may have lost one, or the
// host may not have it any more. For the others the driver is asked.
Result<std::vector<DrainedGpu>> find_drained_gpus(const std::vector<std::string>& words,
                                                  const std::vector<Drain>& drains) {
  const auto list = join_gpu_list(words);
  if (!list) return tl::make_unexpected(list.error());
  std::vector<DrainedGpu> found;
  std::vector<std::string> unresolved;
  const auto entries = parse_gpu_list(*list);
  if (!entries) return tl::make_unexpected(entries.error());
  for (const std::string_view entry : *entries) {
    const std::string word(entry);
    auto uuid = find_drained_gpu(drains, word);
    if (!uuid) return tl::make_unexpected(uuid.error());
    if (uuid->empty()) {
      unresolved.push_back(word);
    } else {
      found.push_back({*uuid, *uuid});
    }
  }
  if (unresolved.empty()) return found;
  const auto unresolved_list = join_gpu_list(unresolved);
  if (!unresolved_list) return tl::make_unexpected(unresolved_list.error());
  const auto gpus = find_gpus(*unresolved_list);
  if (!gpus) return tl::make_unexpected(gpus.error());
  for (const NamedGpu& gpu : *gpus) found.push_back({gpu.index, gpu.uuid});
  return found;
}

bool is_drained(const std::string& uuid, const std::vector<Drain>& drains) {
  return std::any_of(drains.begin(), drains.end(),
                     [&](const Drain& drain) { return drain.uuid == uuid; });
}

Result<int> run(const UndrainCommandOptions& options) {
  if (options.all != options.gpus.empty()) {
    return fail(ErrorKind::usage, options.all ? "undrain: name GPUs, or say --all, not both"
                                              : "undrain: no GPU; 'berth status' shows which are "
                                                "drained, and --all means all of them");
  }
  const auto drains = read_removable_drains();
  if (!drains) return tl::make_unexpected(drains.error());
  std::vector<DrainedGpu> gpus;
  if (options.all) {
    for (const Drain& drain : *drains) gpus.push_back({drain.uuid, drain.uuid});
  } else {
    auto found = find_drained_gpus(options.gpus, *drains);
    if (!found) return tl::make_unexpected(found.error());
    gpus = std::move(*found);
  }
  std::vector<std::string> uuids;
  uuids.reserve(gpus.size());
  for (const DrainedGpu& gpu : gpus) uuids.push_back(gpu.uuid);
  if (auto done = undrain_gpus(uuids); !done) return tl::make_unexpected(done.error());
  for (const DrainedGpu& gpu : gpus) {
    if (is_drained(gpu.uuid, *drains)) {
      print(fmt::format("GPU {} is in service again\n", gpu.name));
    } else {
      print_message(fmt::format("GPU {} was not drained by berth", gpu.name));
    }
  }
  if (gpus.empty()) print_message("no GPU is drained by berth");
  return 0;
}

}  // namespace

Action define_undrain(Flags& command, CLI::App& /*program*/) {
  auto options = std::make_shared<UndrainCommandOptions>();
  command.add_positionals("GPU", "GPUs by index or UUID; by UUID also those that are gone",
                          options->gpus);
  command.add_flag("--all", options->all, "Every drained GPU");
  command.set_footer(
      "Whoever waits for one of them gets it at once. Only root and the owner of the harbour may.\n"
      "\nExamples:\n"
      "  sudo berth undrain 2\n"
      "  sudo berth undrain --all\n"
      "\nExit codes: 0 done; 64 wrong usage; 69 no driver, or no such GPU; 74 the harbour cannot "
      "be\n"
      "used; 77 you may not.");
  return [options]() { return run(*options); };
}

}  // namespace berth
