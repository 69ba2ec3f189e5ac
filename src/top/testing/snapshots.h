// A snapshot for the unit tests of `berth top`: one host with GPUs, leases and a queue.
#pragma once

#include <memory>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "top/model.h"

namespace berth::top::testing {

constexpr TimePoint kNow{std::chrono::hours(500'000)};
constexpr uid_t kOther = 4'000'001;  // not in the user database: shown as a number
constexpr uid_t kViewer = 4'000'002;

inline Record record(std::string id, uid_t uid, std::string title) {
  Record one;
  one.id = std::move(id);
  one.uid = uid;
  one.pid = 4711;
  one.command = std::move(title);
  one.since = one.granted = kNow - std::chrono::minutes(10);
  return one;
}

inline GpuStatus gpu(unsigned index, unsigned gib_used, std::optional<unsigned> utilization) {
  GpuStatus one{{}, {GpuState::free, ""}};
  Gpu& info = one.view.gpu;
  info.index.card = index;
  info.uuid = "GPU-" + std::to_string(index);
  info.name = "NVIDIA GeForce RTX 4090";
  info.memory_total = gib(24);
  info.memory_used = gib(gib_used);
  info.utilization_pct = utilization;
  info.temperature_c = 61;
  return one;
}

inline void add_lease(Status& host, std::vector<std::size_t> gpus, Record lease) {
  for (const std::size_t i : gpus) {
    GpuWithLeases& view = host.gpus[i].view;
    view.leases.push_back(lease.id);
    lease.uuids.push_back(*view.gpu.uuid);
    host.gpus[i].state_reason.state = lease.request.memory ? GpuState::shared : GpuState::leased;
  }
  host.leases.push_back(std::move(lease));
}

// A process on GPU `gpu`, under the lease, or a stranger if `lease` is empty.
inline void add_process(Status& host, std::size_t gpu, std::string lease, std::int64_t pid) {
  AttributedProcess one;
  one.process.pid = pid;
  one.process.name = "python";
  one.process.uid = kOther;
  one.process.memory = gib(3);
  one.lease = std::move(lease);
  host.gpus[gpu].view.processes.push_back(std::move(one));
}

// Four GPUs: 0 is leased by the viewer's shell, 1 and 2 by a job of another user; 3 is free, and
// its utilization is unknown.
inline TopSnapshot make_snapshot() {
  Status host;
  host.host = "gpu-a";
  host.driver = "570";
  host.gpus = {gpu(0, 3, 10), gpu(1, 20, 90), gpu(2, 9, 50), gpu(3, 0, std::nullopt)};
  Record shell = record("aaaaaaaa", kViewer, "bash");
  shell.holder = HolderKind::shell;
  add_lease(host, {0}, shell);
  add_lease(host, {1, 2}, record("bbbbbbbb", kOther, "python train.py"));
  TicketStatus first{record("cccccccc", kViewer, "python mine.py"), 1, "GPU 1 leased by bob", {}};
  TicketStatus second{record("dddddddd", kOther, "python theirs.py"), 2, "its turn is later", {}};
  host.queue = {first, second};
  TopSnapshot all;
  all.hosts = {host};
  all.last_success = kNow;
  return all;
}

inline std::shared_ptr<const TopSnapshot> share_snapshot(TopSnapshot snapshot) {
  return std::make_shared<const TopSnapshot>(std::move(snapshot));
}

inline Model::KeyResult type_keys(Model& model, const std::string& keys) {
  Model::KeyResult last;
  for (const char key : keys) last = model.handle_key({KeyKind::text, std::string(1, key)});
  return last;
}

}  // namespace berth::top::testing
