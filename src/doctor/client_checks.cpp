// Conclusions about GPUs, leases and the queue; see diagnosis.h.
#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "base/shell.h"
#include "base/text.h"
#include "base/users.h"
#include "doctor/checks.h"
#include "harbour/bell.h"
#include "status/explain.h"
#include "status/gpu_state.h"

namespace berth {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

constexpr minutes kFuture(1);
std::string whose(const Record& record) {
  return fmt::format("{} of {} (pid {})", record.id, user_name(record.uid), record.pid);
}

void judge_date(const char* what, const Record& record, TimePoint date, TimePoint now,
                Findings& findings) {
  if (date <= now + kFuture) return;
  findings.push_back({"clock", Level::note,
                      fmt::format("{} {} is dated {} in the future: the clock was set back", what,
                                  whose(record), format_duration(date - now)),
                      "no harm is done, but times that are shown are wrong until it has ended"});
}

void judge_version(const char* what, const Record& record, Findings& findings) {
  if (record.version <= kProtocolVersion) return;
  Finding finding{
      "version", Level::note,
      fmt::format("{} {} of {} was made by a later version of berth (protocol {}, this one "
                  "speaks {})",
                  what, record.id, user_name(record.uid), record.version, kProtocolVersion),
      "use the same berth everywhere"};
  if (record.everything) {
    finding.level = Level::problem;
    finding.text += "; which GPUs it holds is not known, so it counts as holding all";
  }
  findings.push_back(std::move(finding));
}

std::string list(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " and ") + word;
  return text;
}

std::string stranger_remedy(const GpuWithLeases& placed, uid_t me) {
  std::set<std::string> users;
  std::string pids;
  unsigned count = 0;
  bool mine = false;
  bool unknown = false;
  for (const AttributedProcess& one : placed.processes) {
    if (!one.stranger()) continue;
    ++count;
    pids += fmt::format(" {}", one.process.pid);
    if (!one.process.uid) {
      unknown = true;
    } else if (*one.process.uid == me) {
      mine = true;
    } else {
      users.insert(user_name(*one.process.uid));
    }
  }
  if (count == 0) {
    return "sudo fuser -v /dev/nvidia* may find it; if there is none, the GPU needs a reset";
  }
  std::string remedy = mine ? "start it with 'berth run'" : "";
  if (!users.empty()) {
    remedy += fmt::format("{}ask {} to use 'berth run'", remedy.empty() ? "" : "; ", list(users));
  }
  if (unknown) {
    remedy += fmt::format("{}find out on the host, as root, whose it is (ps -fp{})",
                          remedy.empty() ? "" : "; ", pids);
  }
  remedy += fmt::format("; kill{} would free it", pids);
  if (placed.leases.empty()) {
    remedy += fmt::format("; --max-processes {} would share it knowingly", count);
  }
  return remedy;
}

// In a container, a process that cannot be named may well be one of the lease's own.
bool only_unidentified(const GpuWithLeases& placed) {
  return !placed.leases.empty() &&
         std::none_of(placed.processes.begin(), placed.processes.end(),
                      [](const AttributedProcess& one) { return one.stranger() && one.process.uid; });
}

void judge_gpu(const GpuWithLeases& placed, Findings& findings) {
  const GpuStateReason judgement = judge(placed);
  const bool out_of_service = judgement.state == GpuState::drained && !placed.drain;
  if (judgement.state != GpuState::lost && judgement.state != GpuState::unknown &&
      !out_of_service) {
    return;
  }
  Finding finding = as_problem("gpu", {ErrorKind::no_driver, judgement.reason});
  if (out_of_service) finding.level = Level::note;
  finding.text =
      fmt::format("GPU {} is {}: {}", to_string(placed.gpu.index),
                  out_of_service ? "out of service" : to_string(judgement.state), finding.text);
  findings.push_back(std::move(finding));
}

void judge_strangers(const GpuWithLeases& placed, uid_t me, Findings& findings) {
  const std::string strangers = describe_strangers(placed);
  if (strangers.empty()) return;
  findings.push_back({"stranger", only_unidentified(placed) ? Level::note : Level::problem,
                      fmt::format("GPU {}: {}", to_string(placed.gpu.index), strangers),
                      stranger_remedy(placed, me)});
}

}  // namespace

Findings judge_queue(const std::vector<WaitingTicket>& tickets) {
  Findings findings;
  bool stopped = false;
  bool silent = false;
  for (const WaitingTicket& ticket : tickets) {
    const std::string cancel = fmt::format(
        "see whether its container is paused; {} or root can cancel it: berth cancel {}",
        user_name(ticket.record.uid), ticket.record.id);
    if (ticket.stopped) {
      findings.push_back(
          {"stopped", Level::note,
           fmt::format("ticket {} is stopped: it is passed over, and keeps its place",
                       whose(ticket.record)),
           ticket.stopped_by_signal ? fmt::format("kill -CONT {} lets it go on", ticket.record.pid)
                                    : cancel});
    } else if (ticket.silent) {
      findings.push_back(
          {"silent", Level::problem,
           fmt::format("ticket {} could start now and does not claim its GPUs: other clients pass "
                       "over it after some seconds",
                       whose(ticket.record)),
           cancel});
    }
    stopped = stopped || ticket.stopped;
    silent = silent || (ticket.silent && !ticket.stopped);
  }
  findings.push_back({"queue_order", Level::ok,
                      fmt::format("{} waiting, in the order in which they came", tickets.size()),
                      ""});
  if (!stopped) findings.push_back({"stopped", Level::ok, "no waiting process is stopped", ""});
  if (!silent) {
    findings.push_back({"silent", Level::ok, "no ticket leaves GPUs unclaimed", ""});
  }
  return findings;
}

Findings judge_unreadable(const std::string& path, const std::vector<Record>& leases) {
  Findings findings;
  for (const Record& lease : leases) {
    if (lease.problem.empty()) continue;
    findings.push_back(
        {"unreadable", Level::problem,
         fmt::format("lease {} of {} is alive, and {}: it counts as holding {}", lease.id,
                     user_name(lease.uid), lease.problem,
                     lease.everything ? std::string("every GPU")
                                      : fmt::format("{}", fmt::join(lease.uuids, ", "))),
         fmt::format("ask {} to end the process that holds it (fuser -v {})", user_name(lease.uid),
                     shell_quote(fmt::format("{}/{}", path, bell_name(lease.id))))});
  }
  if (findings.empty()) {
    findings.push_back({"unreadable", Level::ok, "every live lease can be read", ""});
  }
  return findings;
}

Findings judge_records(const std::vector<Record>& leases, const std::vector<Record>& tickets,
                       TimePoint now) {
  Findings dates;
  Findings findings;
  for (const Record& lease : leases) {
    judge_version("lease", lease, findings);
    judge_date("lease", lease, lease.granted, now, dates);
  }
  for (const Record& ticket : tickets) {
    judge_version("ticket", ticket, findings);
    judge_date("ticket", ticket, ticket.since, now, dates);
  }
  if (findings.empty()) {
    findings.push_back({"version", Level::ok, "nobody uses a later version of berth", ""});
  }
  if (dates.empty()) dates.push_back({"clock", Level::ok, "nothing is dated in the future", ""});
  findings.insert(findings.end(), dates.begin(), dates.end());
  return findings;
}

Findings judge_drains(const std::vector<Drain>& drains, const HostView& scene, TimePoint now) {
  Findings findings;
  for (const Drain& drain : drains) {
    const auto gpu = std::find_if(scene.gpus.begin(), scene.gpus.end(),
                                  [&](const GpuWithLeases& one) { return one.gpu.uuid == drain.uuid; });
    const std::string index = gpu == scene.gpus.end() ? drain.uuid : to_string(gpu->gpu.index);
    const auto age = std::max(now - drain.since, TimePoint::duration::zero());
    findings.push_back(
        {"drain", Level::note,
         fmt::format("GPU {} was drained by {} {} ago: {}", index, user_name(drain.uid),
                     format_duration(std::chrono::floor<std::chrono::seconds>(age)),
                     drain.reason.empty() ? "no reason given" : drain.reason),
         fmt::format("'berth undrain {}' takes it back into service", index)});
  }
  if (findings.empty()) findings.push_back({"drain", Level::ok, "no GPU is drained", ""});
  return findings;
}

Findings judge_gpus(const HostView& scene, uid_t me) {
  if (scene.gpus.empty()) {
    return {
        {"gpu", Level::problem, "the driver has no GPU",
         "see whether the host has one (lspci | grep -i nvidia), and the kernel's log (dmesg)"}};
  }
  Findings findings;
  for (const GpuWithLeases& placed : scene.gpus) judge_gpu(placed, findings);
  if (findings.empty()) {
    findings.push_back({"gpu", Level::ok, "no GPU is lost, unreadable or out of service", ""});
  }
  const std::size_t gpus = findings.size();
  for (const GpuWithLeases& placed : scene.gpus) judge_strangers(placed, me, findings);
  if (findings.size() == gpus) {
    findings.push_back({"stranger", Level::ok, "no process uses a GPU without a lease", ""});
  }
  return findings;
}

}  // namespace berth
