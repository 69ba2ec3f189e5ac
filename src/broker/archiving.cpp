// Leases as the history has them; see archiving.h.
#include "broker/archiving.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "harbour/harbour.h"

namespace berth {
namespace {

// By user, too: what somebody writes in his own file says nothing of another's lease.
using LiveLeases = std::map<std::pair<uid_t, std::string>, Record>;

Result<LiveLeases> live_leases(const HarbourLocation& where) {
  LiveLeases leases;
  auto harbour = Harbour::open_existing(where);
  if (!harbour) return tl::make_unexpected(harbour.error());
  if (!*harbour) return leases;
  auto transaction = (*harbour)->begin(LockMode::shared, {});
  if (!transaction) return tl::make_unexpected(transaction.error());
  auto clients = (*transaction)->leases();
  if (!clients) return tl::make_unexpected(clients.error());
  for (Client& client : *clients) {
    std::pair key(client.record.uid, client.record.id);
    leases.emplace(std::move(key), std::move(client.record));
  }
  return leases;
}

// It lives in the harbour, whatever is written: what its main process left behind keeps it.
void goes_on(HistoryEntry& entry, TimePoint now) {
  entry.ending = Ending::running;
  entry.code = 0;
  entry.ended = now;
  entry.idle.reset();
  for (HistoryGpu& gpu : entry.gpus) {
    gpu.peak.reset();
    gpu.utilization_pct.reset();
  }
}

// The harbour knows no index: then the last that the same GPU had will do.
void name_as_others(HistoryGpu& gpu, const std::vector<HistoryEntry>& entries) {
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    for (const HistoryGpu& known : entry->gpus) {
      if (known.uuid != gpu.uuid || known.index.empty()) continue;
      gpu.index = known.index;
      gpu.name = known.name;
      return;
    }
  }
}

}  // namespace

HistoryEntry history_entry(const Record& lease, const std::vector<Gpu>& gpus, Ending ending,
                           int code, const Usage& measured) {
  // Of what runs, the beginning would be taken for the whole.
  const Usage usage = ending == Ending::running ? Usage{} : measured;
  HistoryEntry entry;
  entry.id = lease.id;
  entry.uid = lease.uid;
  entry.command = lease.command;
  entry.label = lease.label;
  entry.job = lease.job;
  entry.within = lease.within;
  for (const std::string& uuid : lease.uuids) {
    HistoryGpu one{uuid, "", ""};
    for (const GpuUsage& used : usage.gpus) {
      if (used.uuid != uuid) continue;
      one.peak = used.peak;
      if (used.utilization_pct) {
        one.utilization_pct = static_cast<unsigned>(rounded(*used.utilization_pct));
      }
    }
    const auto gpu = std::find_if(gpus.begin(), gpus.end(),
                                  [&](const Gpu& candidate) { return candidate.uuid == uuid; });
    if (gpu != gpus.end()) {
      one.index = to_string(gpu->index);
      one.name = gpu->name.value_or("");
    }
    entry.gpus.push_back(std::move(one));
  }
  entry.memory = lease.request.memory;
  entry.asked = lease.since;
  entry.granted = lease.granted;
  entry.ended = std::chrono::system_clock::now();
  entry.ending = ending;
  entry.code = code;
  entry.idle = usage.idle;
  return entry;
}

Result<void> archive(const HarbourLocation& harbour, const HistoryEntry& entry) {
  const auto folder = own_folder(archive_path(harbour));
  if (!folder) return tl::make_unexpected(folder.error());
  return append_history(*folder, entry);
}

Result<History> recall(const HarbourLocation& harbour, TimePoint since, const WantEntry& want) {
  // What runs now has begun at any time before; what is written of it knows the names of its GPUs.
  const auto running = live_leases(harbour);
  if (!running) return tl::make_unexpected(running.error());
  TimePoint first = since;
  for (const auto& [key, lease] : *running) first = std::min(first, lease.granted);
  const auto concerns = [&](const HistoryEntry& entry) {
    return (entry.ended >= since || running->contains({entry.uid, entry.id})) && want(entry);
  };
  History history = read_all_history(archive_path(harbour), first, concerns);
  // Again, after the history: what ends in between is still running, rather than lost.
  auto live = live_leases(harbour);
  if (!live) return tl::make_unexpected(live.error());
  const TimePoint now = std::chrono::system_clock::now();
  for (HistoryEntry& entry : history.entries) {
    if (live->erase({entry.uid, entry.id}) > 0) {
      goes_on(entry, now);
    } else if (entry.ending == Ending::running) {
      entry.ending = Ending::lost;
    }
  }
  for (const auto& [key, lease] : *live) {
    HistoryEntry entry = history_entry(lease, {}, Ending::running);
    for (HistoryGpu& gpu : entry.gpus) name_as_others(gpu, history.entries);
    if (want(entry)) history.entries.push_back(std::move(entry));
  }
  sort_by_grant(history.entries);
  return history;
}

Result<LeaseHistory> recall_leases(const HarbourLocation& harbour, TimePoint since,
                                   std::optional<uid_t> user) {
  LeaseHistory history = read_leases(archive_path(harbour), since, user);
  const auto live = live_leases(harbour);
  if (!live) return tl::make_unexpected(live.error());
  std::vector<HistoryEntry> running;
  for (const auto& [key, lease] : *live) {
    if (!user || lease.uid == *user) running.push_back(history_entry(lease, {}, Ending::running));
  }
  history.table.settle(running, std::chrono::system_clock::now());
  return history;
}

void archive_dead(const HarbourLocation& harbour, const std::vector<Record>& leases,
                  const std::vector<Gpu>& gpus) {
  for (const Record& lease : leases) {
    (void)archive(harbour, history_entry(lease, gpus, Ending::lost));
  }
}

}  // namespace berth
