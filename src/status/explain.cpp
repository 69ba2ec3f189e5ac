// Reasons in words; see explain.h.
#include "status/explain.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/users.h"

namespace berth {
namespace {

constexpr std::size_t kCommandColumns = 40;

const GpuWithLeases* gpu_of(const HostView& scene, const std::string& uuid) {
  const auto found = std::find_if(scene.gpus.begin(), scene.gpus.end(),
                                  [&](const GpuWithLeases& one) { return one.gpu.uuid == uuid; });
  return found == scene.gpus.end() ? nullptr : &*found;
}

std::string join(const std::vector<std::string>& parts, std::string_view glue) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += glue;
    text += part;
  }
  return text;
}

const Record* find(const std::vector<Record>& records, const std::string& id) {
  const auto found =
      std::find_if(records.begin(), records.end(), [&](const Record& one) { return one.id == id; });
  return found == records.end() ? nullptr : &*found;
}

// " of bob (python train.py)", if somebody has looked at it.
std::string of_whom(const std::string& ticket, const HostView& scene) {
  const Record* record = find(scene.tickets, ticket);
  return record == nullptr ? "" : fmt::format(" of {}", describe_holder(*record));
}

std::string describe_holders(const std::vector<std::string>& ids, const HostView& scene) {
  std::vector<std::string> holders;
  for (const std::string& id : ids) {
    const Record* lease = find(scene.leases, id);
    // Else granted in this decision, and not yet claimed.
    std::string holder = lease == nullptr ? fmt::format("an earlier ticket{}", of_whom(id, scene))
                                          : describe_holder(*lease);
    if (std::find(holders.begin(), holders.end(), holder) == holders.end()) {
      holders.push_back(std::move(holder));
    }
  }
  // One user can have thousands of them.
  constexpr std::size_t kMostNamed = 8;
  if (holders.size() > kMostNamed + 1) {
    const std::size_t more = holders.size() - kMostNamed;
    holders.resize(kMostNamed);
    return fmt::format("{} and {} more", join(holders, ", "), more);
  }
  return join(holders, ", ");
}

// What follows "GPU 0" in a reason: " drained: a fan fails", or ": its state is unknown".
std::string describe_unusable(const GpuWithLeases& placed) {
  if (placed.drain) return fmt::format(" {}", describe_drain(*placed.drain));
  if (placed.gpu.health != Health::ok) {
    return fmt::format(": {}",
                       placed.gpu.problem.empty() ? "its state is unknown" : placed.gpu.problem);
  }
  return placed.gpu.mig_without_instances ? " in MIG mode without an instance"
                                          : ": its compute mode is prohibited";
}

std::string describe_little_memory(const Blocker& obstacle, const GpuWithLeases& placed,
                                   const HostView& scene) {
  constexpr std::string_view kLittle = ": too little memory is left";
  if (!obstacle.leases.empty()) {
    return fmt::format("{} beside {}", kLittle, describe_holders(obstacle.leases, scene));
  }
  const std::string strangers = describe_strangers(placed);
  if (!strangers.empty()) return fmt::format("{}: {}", kLittle, strangers);
  if (placed.gpu.memory_is_hosts) return ": the host's programs use too much of its memory";
  return fmt::format("{} beside the display", kLittle);
}

std::string describe_busy(const GpuWithLeases& placed) {
  const auto percent = [](const std::optional<unsigned>& value) {
    return value ? fmt::format("{} %", *value) : std::string("an unknown load");
  };
  return fmt::format(" busy ({} of its time, {} of its memory's)",
                     percent(placed.gpu.utilization_pct),
                     percent(placed.gpu.memory_utilization_pct));
}

// Who measures what this one would measure.
std::string describe_profile(const std::string& id, const HostView& scene) {
  if (const Record* lease = find(scene.leases, id)) {
    return fmt::format("lease {} measures the first run of its type, {}; the others wait for that",
                       id, in_quotes(lease->job));
  }
  return fmt::format("ticket {}{} is the first of its type, and will be measured", id,
                     of_whom(id, scene));
}

std::string describe(const Blocker& obstacle, const GpuWithLeases& placed, const HostView& scene) {
  switch (obstacle.hindrance) {
    case BlockReason::unusable:
      return describe_unusable(placed);
    case BlockReason::leased:
      return fmt::format(" leased by {}", describe_holders(obstacle.leases, scene));
    case BlockReason::strangers:
      return fmt::format(": {}", describe_strangers(placed));
    case BlockReason::memory:
      return describe_little_memory(obstacle, placed, scene);
    case BlockReason::busy:
      return describe_busy(placed);
    case BlockReason::reserved:
      return fmt::format(" kept for ticket {}{}, which came first", obstacle.ticket,
                         of_whom(obstacle.ticket, scene));
  }
  return "";
}

}  // namespace

std::string describe_holder(const Record& record) {
  const std::string& what = record.label.empty() ? record.command : record.label;
  if (what.empty()) return user_name(record.uid);
  return fmt::format("{} ({})", user_name(record.uid), fitted(printable(what), kCommandColumns));
}

std::string describe_drain(const Drain& drain) {
  return fmt::format("drained by {}{}{}", user_name(drain.uid), drain.reason.empty() ? "" : ": ",
                     drain.reason);
}

std::string describe_stranger(const GpuProcess& process) {
  return fmt::format(
      "{} (pid {}{}) {} without a lease", process.name.value_or("a process"), process.pid,
      process.uid ? fmt::format(", user {}", user_name(*process.uid)) : "",
      process.memory ? fmt::format("uses {}", format_size(*process.memory)) : "runs");
}

std::string describe_strangers(const GpuWithLeases& placed) {
  std::vector<std::string> parts;
  for (const AttributedProcess& one : placed.processes) {
    if (one.stranger()) parts.push_back(describe_stranger(one.process));
  }
  if (parts.empty() && placed.unexplained) {
    parts.push_back(fmt::format("{} are in use by a process that the driver does not list",
                                format_size(*placed.unexplained)));
  }
  return join(parts, ", ");
}

std::string explain_wait(const Wait& wait, const Request& request, const HostView& scene) {
  if (wait.passed_over) return "stopped when its turn came; it keeps its place";
  if (!wait.profiled_by.empty()) return describe_profile(wait.profiled_by, scene);
  // The same sentence for several GPUs is said once.
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
  for (const Blocker& obstacle : wait.obstacles) {
    const GpuWithLeases* placed = gpu_of(scene, obstacle.uuid);
    if (placed == nullptr) continue;
    const std::string reason = describe(obstacle, *placed, scene);
    auto same = std::find_if(reasons.begin(), reasons.end(),
                             [&](const auto& one) { return one.first == reason; });
    if (same == reasons.end()) same = reasons.insert(reasons.end(), {reason, {}});
    same->second.push_back(to_string(placed->gpu.index));
  }
  std::string text;
  if (request.count > 1 || wait.available > 0) {
    text = fmt::format("needs {} {}, {} {} to be had", request.count,
                       request.count == 1 ? "GPU" : "GPUs", wait.available,
                       wait.available == 1 ? "is" : "are");
  }
  for (const auto& [reason, indices] : reasons) {
    if (!text.empty()) text += "; ";
    text += fmt::format("GPU {}{}", join(indices, ","), reason);
  }
  return text.empty() ? "others came first" : text;
}

Error explain_impossible(const Impossible& impossible, const Request& request, const HostView& scene) {
  std::vector<std::string> wanted;
  if (request.name) wanted.push_back(fmt::format("with {} in its name", in_quotes(*request.name)));
  if (request.min_memory) {
    wanted.push_back(fmt::format("of {} or more", format_size(*request.min_memory)));
  }
  if (request.uuids) wanted.push_back("among those named");
  if (request.memory) {
    wanted.push_back(fmt::format("with room for {}", format_size(*request.memory)));
  }
  const auto lost = std::count_if(scene.gpus.begin(), scene.gpus.end(), [](const GpuWithLeases& one) {
    return one.gpu.health == Health::lost;
  });
  std::string fits;
  if (impossible.matching > impossible.large_enough) {
    fits = fmt::format("the largest of them has {}", format_size(impossible.largest));
  } else if (impossible.large_enough > 0) {
    fits = fmt::format("{} would fit", impossible.large_enough);
  } else {
    std::vector<std::string> names;
    for (const GpuWithLeases& one : scene.gpus) {
      const std::string name =
          fmt::format("{} ({})", one.gpu.name.value_or("a GPU"),
                      one.gpu.memory_total ? format_size(*one.gpu.memory_total) : "unknown size");
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    fits = names.empty() ? "there is no GPU" : fmt::format("there is {}", join(names, ", "));
  }
  return {ErrorKind::impossible,
          fmt::format("this host can never give {} {}{}: it has {}{}; {}", request.count,
                      request.count == 1 ? "GPU" : "GPUs",
                      wanted.empty() ? "" : fmt::format(" {}", join(wanted, " and ")),
                      impossible.large_enough, lost > 0 ? fmt::format(" (and {} lost)", lost) : "",
                      fits)};
}

}  // namespace berth
