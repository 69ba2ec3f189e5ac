// The checks of GPUs, leases and the queue; see checks.h.
#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "base/shell.h"
#include "base/text.h"
#include "base/users.h"
#include "doctor/checks.h"
#include "harbour/file_names.h"
#include "status/explain.h"
#include "status/gpu_state.h"

namespace berth {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

constexpr minutes kMaxClockSkew(1);

std::string describe_client(const Record& record) {
  return fmt::format("{} of {} (pid {})", record.id, user_name(record.uid), record.pid);
}

void check_date(const char* what, const Record& record, TimePoint date, TimePoint now,
                Findings& findings) {
  if (date <= now + kMaxClockSkew) return;
  findings.push_back({"clock", Level::note,
                      fmt::format("{} {} is dated {} in the future: the clock was set back", what,
                                  describe_client(record), format_duration(date - now)),
                      "harmless, but the times shown for it are wrong until it ends"});
}

void check_version(const char* what, const Record& record, Findings& findings) {
  if (record.version <= kProtocolVersion) return;
  Finding finding{
      "version", Level::note,
      fmt::format("{} {} of {} was made by a later version of berth (protocol {}, this "
                  "version uses {})",
                  what, record.id, user_name(record.uid), record.version, kProtocolVersion),
      "install the same version of berth for all users"};
  if (record.holds_all_gpus) {
    finding.level = Level::problem;
    finding.text += "; its GPUs are unknown, so it counts as holding all";
  }
  findings.push_back(std::move(finding));
}

std::string format_stranger_remedy(const GpuWithLeases& gpu_view, uid_t viewer) {
  std::set<std::string> users;
  std::string pids;
  unsigned count = 0;
  bool viewers_own = false;
  bool unknown = false;
  for (const AttributedProcess& one : gpu_view.processes) {
    if (!one.is_stranger()) continue;
    ++count;
    pids += fmt::format(" {}", one.process.pid);
    if (!one.process.uid) {
      unknown = true;
    } else if (*one.process.uid == viewer) {
      viewers_own = true;
    } else {
      users.insert(user_name(*one.process.uid));
    }
  }
  if (count == 0) {
    return "run: sudo fuser -v /dev/nvidia* (lists its users); if it lists none, reset the GPU";
  }
  std::string remedy = viewers_own ? "start it with 'berth run'" : "";
  if (!users.empty()) {
    remedy += fmt::format("{}ask {} to use 'berth run'", remedy.empty() ? "" : "; ",
                          join_text(users, " and "));
  }
  if (unknown) {
    remedy += fmt::format("{}find its user as root on the host (ps -fp{})",
                          remedy.empty() ? "" : "; ", pids);
  }
  remedy += fmt::format("; to free the GPU: kill{}", pids);
  if (gpu_view.leases.empty()) {
    remedy += fmt::format("; to share the GPU anyway: --max-processes {}", count);
  }
  return remedy;
}

// In a container, a process without a known user may well belong to the lease itself.
bool has_only_unidentified_strangers(const GpuWithLeases& gpu_view) {
  return !gpu_view.leases.empty() &&
         std::none_of(
             gpu_view.processes.begin(), gpu_view.processes.end(),
             [](const AttributedProcess& one) { return one.is_stranger() && one.process.uid; });
}

void check_gpu(const GpuWithLeases& gpu_view, Findings& findings) {
  const GpuStateReason state_reason = classify(gpu_view);
  const bool out_of_service = state_reason.state == GpuState::drained && !gpu_view.drain;
  if (state_reason.state != GpuState::lost && state_reason.state != GpuState::unknown &&
      !out_of_service) {
    return;
  }
  Finding finding = make_problem("gpu", {ErrorKind::no_driver, state_reason.reason});
  if (out_of_service) finding.level = Level::note;
  finding.text =
      fmt::format("GPU {} is {}: {}", to_string(gpu_view.gpu.index),
                  out_of_service ? "out of service" : to_string(state_reason.state), finding.text);
  findings.push_back(std::move(finding));
}

void check_strangers(const GpuWithLeases& gpu_view, uid_t viewer, Findings& findings) {
  const std::string strangers = describe_strangers(gpu_view);
  if (strangers.empty()) return;
  findings.push_back({"stranger",
                      has_only_unidentified_strangers(gpu_view) ? Level::note : Level::problem,
                      fmt::format("GPU {}: {}", to_string(gpu_view.gpu.index), strangers),
                      format_stranger_remedy(gpu_view, viewer)});
}

}  // namespace

Findings check_queue(const std::vector<WaitingTicket>& tickets) {
  Findings findings;
  bool stopped = false;
  bool silent = false;
  for (const WaitingTicket& ticket : tickets) {
    const std::string cancel = fmt::format(
        "check whether its container is paused; {} or root can cancel it: berth cancel {}",
        user_name(ticket.record.uid), ticket.record.id);
    if (ticket.stopped) {
      findings.push_back(
          {"stopped", Level::note,
           fmt::format("ticket {} is stopped: other clients skip it, and it keeps its place",
                       describe_client(ticket.record)),
           ticket.stopped_by_signal ? fmt::format("to resume it: kill -CONT {}", ticket.record.pid)
                                    : cancel});
    } else if (ticket.silent) {
      findings.push_back(
          {"silent", Level::problem,
           fmt::format("ticket {} could start now but does not claim its GPUs: other clients skip "
                       "it after some seconds",
                       describe_client(ticket.record)),
           cancel});
    }
    stopped = stopped || ticket.stopped;
    silent = silent || (ticket.silent && !ticket.stopped);
  }
  findings.push_back({"queue_order", Level::ok,
                      tickets.empty() ? std::string("the queue is empty")
                                      : fmt::format("{} {}, in order of arrival", tickets.size(),
                                                    tickets.size() == 1 ? "ticket" : "tickets"),
                      ""});
  if (!stopped) findings.push_back({"stopped", Level::ok, "no waiting process is stopped", ""});
  if (!silent) {
    findings.push_back({"silent", Level::ok, "no ticket leaves GPUs unclaimed", ""});
  }
  return findings;
}

Findings check_unreadable(const std::string& path, const std::vector<Record>& leases) {
  Findings findings;
  for (const Record& lease : leases) {
    if (lease.problem.empty()) continue;
    const std::string problem = lease.problem.starts_with("it ")
                                    ? fmt::format("its record {}", lease.problem.substr(3))
                                    : lease.problem;
    findings.push_back(
        {"unreadable", Level::problem,
         fmt::format(
             "lease {} of {} is held, but {}: the lease counts as holding {}", lease.id,
             user_name(lease.uid), problem,
             lease.holds_all_gpus ? std::string("every GPU") : join_text(lease.uuids, ", ")),
         fmt::format("ask {} to end the process that holds it (fuser -v {})", user_name(lease.uid),
                     shell_quote(fmt::format("{}/{}", path, bell_file_name(lease.id))))});
  }
  if (findings.empty()) {
    findings.push_back({"unreadable", Level::ok, "every live lease can be read", ""});
  }
  return findings;
}

Findings check_records(const std::vector<Record>& leases, const std::vector<Record>& tickets,
                       TimePoint now) {
  Findings dates;
  Findings findings;
  for (const Record& lease : leases) {
    check_version("lease", lease, findings);
    check_date("lease", lease, lease.granted, now, dates);
  }
  for (const Record& ticket : tickets) {
    check_version("ticket", ticket, findings);
    check_date("ticket", ticket, ticket.since, now, dates);
  }
  if (findings.empty()) {
    findings.push_back({"version", Level::ok, "no client uses a later version of berth", ""});
  }
  if (dates.empty())
    dates.push_back({"clock", Level::ok, "no lease or ticket is dated in the future", ""});
  findings.insert(findings.end(), dates.begin(), dates.end());
  return findings;
}

Findings check_drains(const std::vector<Drain>& drains, const HostView& view, TimePoint now) {
  Findings findings;
  for (const Drain& drain : drains) {
    const auto gpu =
        std::find_if(view.gpus.begin(), view.gpus.end(),
                     [&](const GpuWithLeases& one) { return one.gpu.uuid == drain.uuid; });
    const std::string index = gpu == view.gpus.end() ? drain.uuid : to_string(gpu->gpu.index);
    const auto age = std::max(now - drain.since, TimePoint::duration::zero());
    findings.push_back(
        {"drain", Level::note,
         fmt::format("GPU {} was drained by {} {} ago: {}", index, user_name(drain.uid),
                     format_duration(std::chrono::floor<std::chrono::seconds>(age)),
                     drain.reason.empty() ? "no reason given" : drain.reason),
         fmt::format("to put it back into service: berth undrain {}", index)});
  }
  if (findings.empty()) findings.push_back({"drain", Level::ok, "no GPU is drained", ""});
  return findings;
}

Findings check_gpus(const HostView& view, uid_t viewer) {
  if (view.gpus.empty()) {
    return {{"gpu", Level::problem, "the driver reports no GPU",
             "check that the host has one (lspci | grep -i nvidia), and the kernel log (dmesg)"}};
  }
  Findings findings;
  for (const GpuWithLeases& gpu_view : view.gpus) check_gpu(gpu_view, findings);
  if (findings.empty()) {
    findings.push_back({"gpu", Level::ok, "no GPU is lost, unreadable or out of service", ""});
  }
  const std::size_t gpus = findings.size();
  for (const GpuWithLeases& gpu_view : view.gpus) check_strangers(gpu_view, viewer, findings);
  if (findings.size() == gpus) {
    findings.push_back({"stranger", Level::ok, "no process uses a GPU without a lease", ""});
  }
  return findings;
}

}  // namespace berth
