// The command `berth undrain GPU… | --all`.
#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/terminal.h"
#include "cli/command.h"
#include "cli/gpu_arguments.h"
#include "lease/drain_gpus.h"
#include "lease/gpu_list.h"

namespace berth {
namespace {

struct UndrainCommandOptions {
  std::vector<std::string> gpus;
  bool all = false;
  bool json = false;
};

// Looks up UUIDs among the drains, since the driver may have lost such a GPU, or the host may not
// have it any more. Queries the driver for the other words. The index of a GPU that was found among
// the drains is its UUID.
Result<std::vector<NamedGpu>> find_drained_gpus(const std::vector<std::string>& words,
                                                const std::vector<Drain>& drains) {
  const std::string list = TRY(join_gpu_list(words));
  std::vector<NamedGpu> found;
  std::vector<std::string> unresolved;
  for (const std::string& word : TRY(parse_gpu_list(list))) {
    const std::string uuid = TRY(find_drained_gpu(drains, word));
    if (uuid.empty()) {
      unresolved.push_back(word);
    } else {
      found.push_back({uuid, uuid});
    }
  }
  if (unresolved.empty()) return found;
  const std::vector<NamedGpu> gpus = TRY(find_gpus(unresolved));
  found.insert(found.end(), gpus.begin(), gpus.end());
  return found;
}

bool is_drained(const std::string& uuid, const std::vector<Drain>& drains) {
  return std::any_of(drains.begin(), drains.end(),
                     [&](const Drain& drain) { return drain.uuid == uuid; });
}

// All drained GPUs: by their index those that the driver reports, and then the others.
std::vector<NamedGpu> name_drained_gpus(const std::vector<Drain>& drains) {
  std::vector<NamedGpu> gpus;
  if (drains.empty()) return gpus;
  if (auto known = find_gpus(std::string(kAllGpus))) {
    gpus = std::move(*known);
    std::erase_if(gpus, [&](const NamedGpu& gpu) { return !is_drained(gpu.uuid, drains); });
  }
  for (const Drain& drain : drains) {
    const bool is_named = std::any_of(gpus.begin(), gpus.end(),
                                      [&](const NamedGpu& gpu) { return gpu.uuid == drain.uuid; });
    if (!is_named) gpus.push_back({drain.uuid, drain.uuid});
  }
  return gpus;
}

std::string format_json(const std::vector<NamedGpu>& gpus, const std::vector<Drain>& drains) {
  Json list = Json::array();
  for (const NamedGpu& gpu : gpus) {
    list.push_back({{"index", index_json(gpu)},
                    {"uuid", gpu.uuid},
                    {"was_drained", is_drained(gpu.uuid, drains)}});
  }
  return to_ascii_json({{"gpus", std::move(list)}}, 2) + "\n";
}

Result<int> run(const UndrainCommandOptions& options) {
  if (options.all != options.gpus.empty()) {
    return fail(ErrorKind::usage, options.all ? "undrain: name GPUs or use --all, not both"
                                              : "undrain: no GPU given; name one ('berth status' "
                                                "shows drained GPUs) or use --all");
  }
  const std::vector<Drain> drains = TRY(read_removable_drains());
  const bool all = options.all || options.gpus == std::vector<std::string>{std::string(kAllGpus)};
  std::vector<NamedGpu> gpus;
  std::vector<std::string> uuids;
  if (all) {
    for (const Drain& drain : drains) uuids.push_back(drain.uuid);
  } else {
    gpus = TRY(find_drained_gpus(options.gpus, drains));
    for (const NamedGpu& gpu : gpus) uuids.push_back(gpu.uuid);
  }
  TRY(undrain_gpus(uuids));
  // After the change, because a driver that hangs must not delay it.
  if (all) gpus = name_drained_gpus(drains);
  if (options.json) {
    print(format_json(gpus, drains));
    return 0;
  }
  for (const NamedGpu& gpu : gpus) {
    const std::string name = gpu.index == gpu.uuid ? gpu.uuid : "GPU " + gpu.index;
    if (is_drained(gpu.uuid, drains)) {
      print(fmt::format("{} is in service again\n", name));
    } else {
      print_message(fmt::format("{} is not drained", name));
    }
  }
  if (gpus.empty()) print_message("no GPU is drained");
  return 0;
}

}  // namespace

Action define_undrain(Flags& command, const CommandContext& /*context*/) {
  auto options = std::make_shared<UndrainCommandOptions>();
  command.add_positionals("GPU", "GPUs by index or UUID; GPUs that are gone by UUID",
                          options->gpus);
  command.add_flag("-a,--all", options->all, "Undrain every drained GPU");
  command.add_flag("--json", options->json, "Print JSON (see docs/json.md)");
  command.set_footer(
      "Waiting jobs can get the GPUs at once. Only root and the owner of the harbour can undrain\n"
      "GPUs.\n"
      "\nExamples:\n"
      "  sudo berth undrain 2\n"
      "  sudo berth undrain --all\n"
      "\nExit codes: 0 done; 64 wrong usage; 69 no driver, or no such GPU; 74 the harbour cannot "
      "be\n"
      "used; 77 permission denied.");
  return [options]() { return run(*options); };
}

}  // namespace berth
