// The command `berth drain GPU… [--reason TEXT]`.
#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/terminal.h"
#include "base/users.h"
#include "cli/command.h"
#include "cli/gpu_arguments.h"
#include "lease/drain_gpus.h"
#include "lease/request_options.h"

namespace berth {
namespace {

struct DrainCommandOptions {
  std::vector<std::string> gpus;
  std::string reason;
  bool json = false;
};

bool has_gpu(const Record& lease, const std::string& uuid) {
  return lease.holds_all_gpus ||
         std::find(lease.uuids.begin(), lease.uuids.end(), uuid) != lease.uuids.end();
}

// "; lease k3f9a2mx of bob stays until its job ends".
std::string format_remaining_leases(const std::vector<Record>& leases, const std::string& uuid) {
  std::string text;
  for (const Record& lease : leases) {
    if (!has_gpu(lease, uuid)) continue;
    text += fmt::format("; lease {} of {} stays until {}", lease.id, user_name(lease.uid),
                        lease.adopted_start               ? "its process ends"
                        : lease.holder == HolderKind::job ? "its job ends"
                                                          : "its shell ends or releases it");
  }
  return text;
}

std::string format_json(const std::vector<NamedGpu>& gpus, const std::vector<Record>& remaining) {
  Json list = Json::array();
  for (const NamedGpu& gpu : gpus) {
    Json leases = Json::array();
    for (const Record& lease : remaining) {
      if (has_gpu(lease, gpu.uuid))
        leases.push_back({{"id", lease.id}, {"user", user_name(lease.uid)}});
    }
    list.push_back({{"index", index_json(gpu)}, {"uuid", gpu.uuid}, {"leases", std::move(leases)}});
  }
  return to_ascii_json({{"gpus", std::move(list)}}, 2) + "\n";
}

Result<int> run(const DrainCommandOptions& options) {
  if (options.gpus.empty()) {
    return fail(ErrorKind::usage, "drain: no GPU given; 'berth status' lists the GPUs");
  }
  const std::vector<NamedGpu> gpus = TRY(find_gpus(options.gpus));
  std::vector<std::string> uuids;
  uuids.reserve(gpus.size());
  for (const NamedGpu& gpu : gpus) uuids.push_back(gpu.uuid);
  const std::vector<Record> remaining = TRY(drain_gpus(uuids, options.reason));
  if (options.json) {
    print(format_json(gpus, remaining));
    return 0;
  }
  const Terminal terminal = terminal_at(STDOUT_FILENO);
  for (const NamedGpu& gpu : gpus) {
    print(fmt::format("GPU {} is drained{}\n", gpu.index,
                      terminal.escape(format_remaining_leases(remaining, gpu.uuid))));
  }
  return 0;
}

}  // namespace

Action define_drain(Flags& command, const CommandContext& /*context*/) {
  auto options = std::make_shared<DrainCommandOptions>();
  command.add_positionals("GPU", "GPUs by index (2, or 2:1 for MIG) or UUID", options->gpus);
  command.add_value("--reason", "TEXT", "Reason, shown to users whose jobs wait for the GPU",
                    [options](std::string_view text) -> Result<void> {
                      options->reason = TRY(parse_public_text(text));
                      return {};
                    });
  command.add_flag("--json", options->json, "Print JSON (see docs/json.md)");
  command.set_footer(
      "A drained GPU is not granted until 'berth undrain'. Current leases keep it until they end.\n"
      "Only root and the owner of the harbour can drain GPUs. Draining again replaces the reason.\n"
      "\nExamples:\n"
      "  sudo berth drain 2 --reason 'its fan is broken'\n"
      "  sudo berth drain 0 1 2 3 --reason 'new driver at 6 pm'\n"
      "\nExit codes: 0 done; 64 wrong usage; 69 no driver, or no such GPU; 74 the harbour cannot "
      "be\n"
      "used; 77 permission denied.");
  return [options]() { return run(*options); };
}

}  // namespace berth
