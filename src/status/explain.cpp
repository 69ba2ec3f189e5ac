// Formats the reasons of the scheduler as text; see explain.h.
#include "status/explain.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/users.h"
#include "status/lease_end.h"
#include "status/status_format.h"

namespace berth {
namespace {

constexpr std::size_t kCommandColumns = 24;

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

// The label of the lease or ticket, or its command; empty if it has neither.
std::string format_short_title(const Record& record) {
  const std::string& title = record.label.empty() ? record.command : record.label;
  return truncate_text(printable(title), kCommandColumns);
}

// " (bob, python train.py)"; empty if the decision has not read the ticket.
std::string format_ticket_owner(const std::string& ticket, const HostView& view) {
  const Record* record = find_record(view.tickets, ticket);
  if (record == nullptr) return "";
  const std::string title = format_short_title(*record);
  return fmt::format(" ({}{}{})", user_name(record->uid), title.empty() ? "" : ", ", title);
}

std::string count_gpus(std::size_t count) {
  return fmt::format("{} {}", count, count == 1 ? "GPU" : "GPUs");
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

// What follows "GPU 0" or "GPUs 0,1" in a reason: " drained: a fan fails", or ": state unknown".
std::string describe_unusable(const GpuWithLeases& gpu_view) {
  if (gpu_view.drain) return fmt::format(" {}", describe_drain(*gpu_view.drain));
  if (gpu_view.gpu.health != Health::ok) {
    return fmt::format(": {}",
                       gpu_view.gpu.problem.empty() ? "state unknown" : gpu_view.gpu.problem);
  }
  return gpu_view.gpu.mig_without_instances ? " in MIG mode without an instance"
                                            : ": compute mode is prohibited";
}

std::string describe_lack_of_memory(const Blocker& blocker, const GpuWithLeases& gpu_view,
                                    const Request& request, const HostView& view) {
  const std::string less = request.memory
                               ? fmt::format("less than {} of memory", format_size(*request.memory))
                               : "too little memory";
  if (!blocker.leases.empty()) {
    return fmt::format(" shared with {}: {} left", describe_holders(blocker.leases, view), less);
  }
  const std::string strangers = describe_strangers(gpu_view);
  if (!strangers.empty()) return fmt::format(": {} left: {}", less, strangers);
  return fmt::format(
      ": {} {}",
      gpu_view.gpu.memory_is_hosts ? "other programs of the host leave" : "the display leaves",
      less);
}

std::string describe_busy(const GpuWithLeases& gpu_view) {
  const auto percent = [](const std::optional<unsigned>& value) {
    return value ? fmt::format("{}%", *value) : std::string("unknown");
  };
  const Gpu& gpu = gpu_view.gpu;
  if (!gpu.utilization_pct && !gpu.memory_utilization_pct) return ": load unknown";
  return fmt::format(" busy (GPU {}, memory {})", percent(gpu.utilization_pct),
                     percent(gpu.memory_utilization_pct));
}

// `id`: the lease or ticket that is measured for the same job type.
std::string describe_profile(const std::string& id, const HostView& view) {
  if (const Record* lease = find_record(view.leases, id)) {
    return fmt::format("the first run of job {} is being measured (lease {})",
                       in_quotes(lease->job), id);
  }
  return fmt::format("the first run of this job, ticket {}{}, is not measured yet", id,
                     format_ticket_owner(id, view));
}

std::string describe_blocker(const Blocker& blocker, const GpuWithLeases& gpu_view,
                             const Request& request, const HostView& view) {
  switch (blocker.reason) {
    case BlockReason::unusable:
      return describe_unusable(gpu_view);
    case BlockReason::leased:
      return fmt::format(" leased by {}", describe_holders(blocker.leases, view));
    case BlockReason::strangers:
      return fmt::format(": {}", describe_strangers(gpu_view));
    case BlockReason::memory:
      return describe_lack_of_memory(blocker, gpu_view, request, view);
    case BlockReason::busy:
      return describe_busy(gpu_view);
    case BlockReason::reserved:
      return fmt::format(" reserved for ticket {}{}, ahead in the queue", blocker.ticket,
                         format_ticket_owner(blocker.ticket, view));
  }
  return "";
}

// "NVIDIA RTX A6000 (48 GiB), Tesla K80 (12 GiB)": each model once.
std::string list_gpu_models(const HostView& view) {
  std::vector<std::string> models;
  for (const GpuWithLeases& one : view.gpus) {
    std::string model =
        fmt::format("{} ({})", one.gpu.name.value_or("a GPU"),
                    one.gpu.memory_total ? format_size(*one.gpu.memory_total) : "unknown size");
    if (std::find(models.begin(), models.end(), model) == models.end()) {
      models.push_back(std::move(model));
    }
  }
  return join_text(models, ", ");
}

}  // namespace

std::string describe_holder(const Record& record) {
  const std::string title = format_short_title(record);
  return title.empty() ? user_name(record.uid)
                       : fmt::format("{} ({})", user_name(record.uid), title);
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
    parts.push_back(fmt::format("{} in use by a process that the driver does not list",
                                format_size(*gpu_view.unexplained)));
  }
  return join_text(parts, ", ");
}

std::string explain_wait(const Wait& wait, const Request& request, const HostView& view) {
  if (wait.passed_over)
    return "passed over because its process is stopped; the ticket keeps its place";
  if (!wait.profiled_by.empty()) return describe_profile(wait.profiled_by, view);
  // GPUs with the same reason share one sentence.
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
  for (const Blocker& blocker : wait.blockers) {
    const GpuWithLeases* gpu_view = find_gpu(view, blocker.uuid);
    if (gpu_view == nullptr) continue;
    const std::string reason = describe_blocker(blocker, *gpu_view, request, view);
    auto same = std::find_if(reasons.begin(), reasons.end(),
                             [&](const auto& one) { return one.first == reason; });
    if (same == reasons.end()) same = reasons.insert(reasons.end(), {reason, {}});
    same->second.push_back(to_string(gpu_view->gpu.index));
  }
  std::string text;
  if (request.count > 1 || wait.available > 0) {
    text = fmt::format("needs {}, {} available", count_gpus(request.count), wait.available);
  }
  for (const auto& [reason, indices] : reasons) {
    if (!text.empty()) text += "; ";
    text += gpu_list(join_text(indices, ",")) + reason;
  }
  return text.empty() ? "other tickets are ahead in the queue" : text;
}

std::string explain_unknown_start(const Wait& wait, const HostView& view, TimePoint now) {
  constexpr std::size_t kMaxNamed = 2;
  std::vector<std::string> reasons;
  const auto add = [&](std::string reason) {
    if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end())
      reasons.push_back(std::move(reason));
  };
  const auto describe_ticket = [&](const std::string& id) {
    const Record* ticket = find_record(view.tickets, id);
    return ticket == nullptr ? fmt::format("ticket {}", id) : describe_holder(*ticket);
  };
  for (const Blocker& blocker : wait.blockers) {
    if (blocker.reason == BlockReason::reserved)
      return fmt::format("it is behind {}", describe_ticket(blocker.ticket));
  }
  for (const Blocker& blocker : wait.blockers) {
    for (const std::string& id : blocker.leases) {
      const Record* lease = find_record(view.leases, id);
      if (lease == nullptr) {  // a ticket that has started before in the simulation
        add(fmt::format("the run time of {} is unknown", describe_ticket(id)));
        continue;
      }
      const auto end = find_lease_end(*lease, now);
      add(end && end->overdue ? fmt::format("{} is {}", describe_holder(*lease),
                                            format_end(end, now, TextForm::column))
                              : fmt::format("the end of {} is unknown", describe_holder(*lease)));
    }
  }
  if (reasons.size() > kMaxNamed) {
    const std::size_t more = reasons.size() - kMaxNamed;
    reasons.resize(kMaxNamed);
    return fmt::format("{}, and {} more", join_text(reasons, ", "), more);
  }
  return join_text(reasons, ", and ");
}

Error explain_impossible(const Impossible& impossible, const Request& request,
                         const HostView& view) {
  const std::size_t found = impossible.large_enough;
  std::vector<std::string> properties;  // that a requested GPU has
  if (request.name) {
    properties.push_back(
        fmt::format("{} in {} name", in_quotes(*request.name), found == 0 ? "its" : "their"));
  }
  const Bytes memory =
      std::max(request.memory.value_or(Bytes{}), request.min_memory.value_or(Bytes{}));
  if (memory > Bytes{}) properties.push_back(fmt::format("{} of memory", format_size(memory)));
  const std::string required = join_text(properties, " and ");
  std::string text;
  if (found > 0) {
    text = fmt::format("the request needs {}{}{}, but ", count_gpus(request.count),
                       required.empty() ? "" : " with ", required);
    text += request.uuids ? fmt::format("only {} of the selected GPUs {}{}", found,
                                        found == 1 ? "matches" : "match",
                                        required.empty() ? " (see CUDA_VISIBLE_DEVICES)" : "")
                          : fmt::format("this host has only {}", found);
  } else if (!required.empty()) {
    text = fmt::format("no {} has {}", request.uuids ? "selected GPU" : "GPU here", required);
  } else if (view.gpus.empty()) {
    text = "this host has no GPU";
  } else {
    text = request.uuids ? "no selected GPU is usable" : "this host has no usable GPU";
  }
  const auto lost = static_cast<std::size_t>(
      std::count_if(view.gpus.begin(), view.gpus.end(),
                    [](const GpuWithLeases& one) { return one.gpu.health == Health::lost; }));
  if (lost > 0) text += fmt::format(" ({} {} lost)", count_gpus(lost), lost == 1 ? "is" : "are");
  if (impossible.matching > found) {
    text += impossible.largest > Bytes{}
                ? fmt::format(" (largest: {})", format_size(impossible.largest))
                : " (memory size unknown)";
  } else if (found == 0 && !required.empty() && !view.gpus.empty()) {
    text += fmt::format("; this host has {}", list_gpu_models(view));
  }
  return {ErrorKind::impossible, std::move(text)};
}

}  // namespace berth
