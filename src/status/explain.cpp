// Formats the reasons of the scheduler as text; see explain.h.
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

const GpuWithLeases* find_gpu(const HostView& view, const std::string& uuid) {
  const auto found = std::find_if(view.gpus.begin(), view.gpus.end(),
                                  [&](const GpuWithLeases& one) { return one.gpu.uuid == uuid; });
  return found == view.gpus.end() ? nullptr : &*found;
}

const Record* find_record(const std::vector<Record>& records, const std::string& id) {
  const auto found =
      std::find_if(records.begin(), records.end(), [&](const Record& one) { return one.id == id; });
  return found == records.end() ? nullptr : &*found;
}

// " of bob (python train.py)"; empty if the decision has not read the ticket.
std::string format_ticket_owner(const std::string& ticket, const HostView& view) {
  const Record* record = find_record(view.tickets, ticket);
  return record == nullptr ? "" : fmt::format(" of {}", describe_holder(*record));
}

std::string describe_holders(const std::vector<std::string>& ids, const HostView& view) {
  std::vector<std::string> holders;
  for (const std::string& id : ids) {
    const Record* lease = find_record(view.leases, id);
    // An id that is not a lease is a ticket that is granted in this decision and has not claimed
    // yet.
    std::string holder = lease == nullptr
                             ? fmt::format("an earlier ticket{}", format_ticket_owner(id, view))
                             : describe_holder(*lease);
    if (std::find(holders.begin(), holders.end(), holder) == holders.end()) {
      holders.push_back(std::move(holder));
    }
  }
  // A user can have thousands of leases on one GPU.
  constexpr std::size_t kMaxNamed = 8;
  if (holders.size() > kMaxNamed + 1) {
    const std::size_t more = holders.size() - kMaxNamed;
    holders.resize(kMaxNamed);
    return fmt::format("{} and {} more", join_text(holders, ", "), more);
  }
  return join_text(holders, ", ");
}

// What follows "GPU 0" in a reason: " drained: a fan fails", or ": its state is unknown".
std::string describe_unusable(const GpuWithLeases& gpu_view) {
  if (gpu_view.drain) return fmt::format(" {}", describe_drain(*gpu_view.drain));
  if (gpu_view.gpu.health != Health::ok) {
    return fmt::format(
        ": {}", gpu_view.gpu.problem.empty() ? "its state is unknown" : gpu_view.gpu.problem);
  }
  return gpu_view.gpu.mig_without_instances ? " in MIG mode without an instance"
                                            : ": its compute mode is prohibited";
}

std::string describe_lack_of_memory(const Blocker& blocker, const GpuWithLeases& gpu_view,
                                    const HostView& view) {
  constexpr std::string_view kTooLittleMemory = ": too little memory is left";
  if (!blocker.leases.empty()) {
    return fmt::format("{} beside {}", kTooLittleMemory, describe_holders(blocker.leases, view));
  }
  const std::string strangers = describe_strangers(gpu_view);
  if (!strangers.empty()) return fmt::format("{}: {}", kTooLittleMemory, strangers);
  if (gpu_view.gpu.memory_is_hosts) return ": the host's programs use too much of its memory";
  return fmt::format("{} beside the display", kTooLittleMemory);
}

std::string describe_busy(const GpuWithLeases& gpu_view) {
  const auto percent = [](const std::optional<unsigned>& value) {
    return value ? fmt::format("{} %", *value) : std::string("an unknown load");
  };
  return fmt::format(" busy ({} of its time, {} of its memory's)",
                     percent(gpu_view.gpu.utilization_pct),
                     percent(gpu_view.gpu.memory_utilization_pct));
}

// `id`: the lease or ticket that is measured for the same job type.
std::string describe_profile(const std::string& id, const HostView& view) {
  if (const Record* lease = find_record(view.leases, id)) {
    return fmt::format("lease {} measures the first run of its type, {}; the others wait for that",
                       id, in_quotes(lease->job));
  }
  return fmt::format("ticket {}{} is the first of its type, and will be measured", id,
                     format_ticket_owner(id, view));
}

std::string describe_blocker(const Blocker& blocker, const GpuWithLeases& gpu_view,
                             const HostView& view) {
  switch (blocker.reason) {
    case BlockReason::unusable:
      return describe_unusable(gpu_view);
    case BlockReason::leased:
      return fmt::format(" leased by {}", describe_holders(blocker.leases, view));
    case BlockReason::strangers:
      return fmt::format(": {}", describe_strangers(gpu_view));
    case BlockReason::memory:
      return describe_lack_of_memory(blocker, gpu_view, view);
    case BlockReason::busy:
      return describe_busy(gpu_view);
    case BlockReason::reserved:
      return fmt::format(" kept for ticket {}{}, which came first", blocker.ticket,
                         format_ticket_owner(blocker.ticket, view));
  }
  return "";
}

}  // namespace

std::string describe_holder(const Record& record) {
  const std::string& what = record.label.empty() ? record.command : record.label;
  if (what.empty()) return user_name(record.uid);
  return fmt::format("{} ({})", user_name(record.uid),
                     truncate_text(printable(what), kCommandColumns));
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

std::string describe_strangers(const GpuWithLeases& gpu_view) {
  std::vector<std::string> parts;
  for (const AttributedProcess& one : gpu_view.processes) {
    if (one.is_stranger()) parts.push_back(describe_stranger(one.process));
  }
  if (parts.empty() && gpu_view.unexplained) {
    parts.push_back(fmt::format("{} are in use by a process that the driver does not list",
                                format_size(*gpu_view.unexplained)));
  }
  return join_text(parts, ", ");
}

std::string explain_wait(const Wait& wait, const Request& request, const HostView& view) {
  if (wait.passed_over) return "stopped when its turn came; it keeps its place";
  if (!wait.profiled_by.empty()) return describe_profile(wait.profiled_by, view);
  // GPUs with the same reason share one sentence.
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
  for (const Blocker& blocker : wait.blockers) {
    const GpuWithLeases* gpu_view = find_gpu(view, blocker.uuid);
    if (gpu_view == nullptr) continue;
    const std::string reason = describe_blocker(blocker, *gpu_view, view);
    auto same = std::find_if(reasons.begin(), reasons.end(),
                             [&](const auto& one) { return one.first == reason; });
    if (same == reasons.end()) same = reasons.insert(reasons.end(), {reason, {}});
    same->second.push_back(to_string(gpu_view->gpu.index));
  }
  std::string text;
  if (request.count > 1 || wait.available > 0) {
    text = fmt::format("needs {} {}, {} {} to be had", request.count,
                       request.count == 1 ? "GPU" : "GPUs", wait.available,
                       wait.available == 1 ? "is" : "are");
  }
  for (const auto& [reason, indices] : reasons) {
    if (!text.empty()) text += "; ";
    text += fmt::format("GPU {}{}", join_text(indices, ","), reason);
  }
  return text.empty() ? "others came first" : text;
}

Error explain_impossible(const Impossible& impossible, const Request& request,
                         const HostView& view) {
  std::vector<std::string> requirements;
  if (request.name)
    requirements.push_back(fmt::format("with {} in its name", in_quotes(*request.name)));
  if (request.min_memory) {
    requirements.push_back(fmt::format("of {} or more", format_size(*request.min_memory)));
  }
  if (request.uuids) requirements.push_back("among those named");
  if (request.memory) {
    requirements.push_back(fmt::format("with room for {}", format_size(*request.memory)));
  }
  const auto lost = std::count_if(view.gpus.begin(), view.gpus.end(), [](const GpuWithLeases& one) {
    return one.gpu.health == Health::lost;
  });
  std::string fits;
  if (impossible.matching > impossible.large_enough) {
    fits = fmt::format("the largest of them has {}", format_size(impossible.largest));
  } else if (impossible.large_enough > 0) {
    fits = fmt::format("{} would fit", impossible.large_enough);
  } else {
    std::vector<std::string> names;
    for (const GpuWithLeases& one : view.gpus) {
      const std::string name =
          fmt::format("{} ({})", one.gpu.name.value_or("a GPU"),
                      one.gpu.memory_total ? format_size(*one.gpu.memory_total) : "unknown size");
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    fits = names.empty() ? "there is no GPU" : fmt::format("there is {}", join_text(names, ", "));
  }
  return {ErrorKind::impossible,
          fmt::format(
              "this host can never give {} {}{}: it has {}{}; {}", request.count,
              request.count == 1 ? "GPU" : "GPUs",
              requirements.empty() ? "" : fmt::format(" {}", join_text(requirements, " and ")),
              impossible.large_enough, lost > 0 ? fmt::format(" (and {} lost)", lost) : "", fits)};
}

}  // namespace berth
