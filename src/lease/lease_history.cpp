// Converts leases to history entries and merges them with the archive; see lease_history.h.
#include "lease/lease_history.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "base/configuration.h"
#include "base/uid_map.h"
#include "base/users.h"
#include "cluster/redis/session.h"
#include "cluster/store/history_stream.h"
#include "cluster/store/unsent_history.h"
#include "harbour/harbour.h"
#include "lease/gpu_list.h"

namespace berth {
namespace {

struct LiveLeases {
  std::map<LeaseKey, Record> local;
  std::set<LeaseKey> remote;                 // on other hosts
  TimePoint first_grant = TimePoint::max();  // the earliest grant of local and remote leases

  bool contains(const LeaseKey& key) const { return local.contains(key) || remote.contains(key); }
};

// This host's name in a history of several hosts. The entries of a single host have no host name.
std::string history_host_name(const HarbourLocation& harbour) {
  return harbour.url ? harbour.host : "";
}

// Other hosts know the uid outside of this process's user namespace.
uid_t shared_uid(uid_t uid) {
  return uid_outside(uid).value_or(uid);
}

// Only entries in a history of several hosts have these fields.
void set_host_and_user(HistoryEntry& entry, const HarbourLocation& harbour) {
  if (!harbour.url) return;
  entry.host = harbour.host;
  entry.user = user_name(entry.uid);
  entry.uid = shared_uid(entry.uid);
}

// Adds the leases of all other hosts whose heartbeats have not expired.
Result<void> read_remote_leases(const HarbourLocation& location, LiveLeases& leases) {
  const Reply hosts = TRY(
      RedisSession(*location.url).call({"HKEYS", fmt::format("{}:hosts", location.url->prefix)}));
  for (const Reply& host : hosts.list()) {
    if (host.text() == location.host || !is_host_name(host.text())) continue;
    const StoreSnapshot snapshot =
        TRY(RedisHostStore(*location.url, host.text()).read_snapshot("", ""));
    for (const StoreEntry& lease : snapshot.leases) {
      const auto record = parse_record(lease.record);
      if (!record || lease.time_left.count() <= 0) continue;
      leases.first_grant = std::min(leases.first_grant, record->granted);
      leases.remote.insert({host.text(), record->uid, record->id});
    }
  }
  return {};
}

Result<LiveLeases> read_live_leases(const HarbourLocation& location) {
  LiveLeases leases;
  std::optional<Harbour> harbour = TRY(Harbour::open_existing(location));
  if (!harbour) return leases;
  std::unique_ptr<Transaction> transaction = TRY(harbour->begin(LockMode::shared, {}));
  std::vector<Client> clients = TRY(transaction->read_leases());
  for (Client& client : clients) {
    leases.first_grant = std::min(leases.first_grant, client.record.granted);
    const uid_t uid = location.url ? shared_uid(client.record.uid) : client.record.uid;
    LeaseKey key{history_host_name(location), uid, client.record.id};
    leases.local.emplace(std::move(key), std::move(client.record));
  }
  transaction.reset();  // drops the lock before the server is asked
  if (location.url) TRY(read_remote_leases(location, leases));
  return leases;
}

Result<History> read_archived_history(const HarbourLocation& harbour, TimePoint since,
                                      const EntryFilter& filter) {
  if (harbour.url) return read_all_history(*harbour.url, since, filter);
  return read_all_history(archive_path(harbour), since, filter);
}

// Sends the entries that earlier commands of this user could not send.
void send_unsent_history(const HarbourLocation& harbour) {
  if (!harbour.url) return;
  const auto folder = find_own_folder(archive_path(harbour));
  if (folder) (void)send_unsent(*folder, *harbour.url);
}

// The leases of all hosts. A lease that runs on another host has only the entry from its beginning.
Result<CompactHistory> read_cluster_leases(const HarbourLocation& harbour, TimePoint since,
                                           const EntryViewFilter& filter,
                                           const LiveLeases& running) {
  const std::int64_t since_ms = to_ms(since);
  return read_compact_history(
      *harbour.url, std::min(since, running.first_grant), [&](const EntryView& view) {
        if (!filter(view)) return false;
        return view.ended_ms >= since_ms || running.contains(lease_key(view));
      });
}

void send_entry(const HarbourLocation& harbour, HistoryEntry entry, const UserFolder* folder) {
  set_host_and_user(entry, harbour);
  const std::string line = serialize_entry(entry);
  if (folder != nullptr && append_unsent(*folder, line)) {
    (void)send_unsent(*folder, *harbour.url);
    return;
  }
  // There is no folder to keep the entry in, so this is the only attempt to send it.
  RedisSession server(*harbour.url);
  if (!server.was_recently_unavailable()) (void)append_to_stream(server, *harbour.url, {line});
}

// The lease is in the harbour although its entry says that it has ended: processes that its main
// process left behind hold it.
void mark_as_running(HistoryEntry& entry, TimePoint now) {
  entry.ending = Ending::running;
  entry.code = 0;
  entry.ended = now;
  entry.idle.reset();
  for (HistoryGpu& gpu : entry.gpus) {
    gpu.peak.reset();
    gpu.utilization_pct.reset();
    gpu.power_mw.reset();
  }
}

// Records in the harbour have no index and name of a GPU. Sets those that the same GPU had last in
// the history. Reads the history once: a lease of another user may name thousands of GPUs.
void copy_known_gpu_names(std::vector<HistoryEntry>& running,
                          const std::vector<HistoryEntry>& entries) {
  std::map<std::string_view, const HistoryGpu*> known_gpus;
  for (const HistoryEntry& entry : running) {
    for (const HistoryGpu& gpu : entry.gpus) known_gpus.emplace(gpu.uuid, nullptr);
  }
  if (known_gpus.empty()) return;
  for (const HistoryEntry& entry : entries) {
    for (const HistoryGpu& gpu : entry.gpus) {
      const auto wanted = known_gpus.find(gpu.uuid);
      if (wanted != known_gpus.end() && !gpu.index.empty()) wanted->second = &gpu;
    }
  }
  for (HistoryEntry& entry : running) {
    for (HistoryGpu& gpu : entry.gpus) {
      const HistoryGpu* const known = known_gpus.at(gpu.uuid);
      if (known == nullptr) continue;
      gpu.index = known->index;
      gpu.name = known->name;
    }
  }
}

}  // namespace

HistoryEntry make_history_entry(const Record& lease, const std::vector<Gpu>& gpus, Ending ending,
                                int code, const Usage& measured) {
  // A reader would take the usage so far for the usage of the whole run.
  const Usage usage = ending == Ending::running ? Usage{} : measured;
  HistoryEntry entry;
  entry.id = lease.id;
  entry.uid = lease.uid;
  entry.command = lease.command;
  entry.label = lease.label;
  entry.job = lease.job;
  entry.parent_lease = lease.parent_lease;
  entry.job_id = lease.job_id;
  entry.job_host = lease.job_host;
  for (const std::string& uuid : lease.uuids) {
    HistoryGpu one{uuid, "", ""};
    for (const GpuUsage& used : usage.gpus) {
      if (used.uuid != uuid) continue;
      one.peak = used.peak;
      if (used.utilization_pct) {
        one.utilization_pct = static_cast<unsigned>(round_positive(*used.utilization_pct));
      }
      if (used.power_w) one.power_mw = static_cast<unsigned>(round_positive(1000 * *used.power_w));
    }
    if (const Gpu* gpu = find_gpu(gpus, uuid)) {
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
  entry.adopted = lease.adopted_start.has_value();
  return entry;
}

Result<void> archive_entry(const HarbourLocation& harbour, const HistoryEntry& entry) {
  const auto folder = open_own_folder(archive_path(harbour));
  Result<void> written =
      folder ? append_history(*folder, entry) : tl::make_unexpected(folder.error());
  if (harbour.url) send_entry(harbour, entry, folder ? &*folder : nullptr);
  return written;
}

bool LeaseFilter::matches(uid_t lease_uid, std::string_view lease_user,
                          std::string_view lease_host) const {
  if (!host.empty() && lease_host != host) return false;
  if (lease_user.empty()) return !uid || lease_uid == *uid;
  return user.empty() || lease_user == user;
}

Result<History> read_merged_history(const HarbourLocation& harbour, TimePoint since,
                                    const EntryFilter& filter) {
  send_unsent_history(harbour);
  // A running lease may have begun long before `since`. Its entry is needed for the names of its
  // GPUs.
  const LiveLeases running = TRY(read_live_leases(harbour));
  const TimePoint first = std::min(since, running.first_grant);
  const auto is_relevant = [&](const HistoryEntry& entry) {
    return (entry.ended >= since || running.contains(lease_key(entry))) && filter(entry);
  };
  History history = TRY(read_archived_history(harbour, first, is_relevant));
  // Read again after the history: a lease that began since the first read is in the archive as
  // running, and would otherwise be shown as lost.
  LiveLeases live = TRY(read_live_leases(harbour));
  const TimePoint now = std::chrono::system_clock::now();
  for (HistoryEntry& entry : history.entries) {
    const LeaseKey key = lease_key(entry);
    const bool is_live = live.local.erase(key) > 0 || live.remote.contains(key);
    // The end of a lease that ended since the first read may be in no line that was read.
    if (is_live || (entry.ending == Ending::running && running.contains(key))) {
      mark_as_running(entry, now);
    } else if (entry.ending == Ending::running) {
      entry.ending = Ending::lost;
    }
  }
  std::vector<HistoryEntry> new_leases;  // that the history does not have yet
  for (const auto& [key, lease] : live.local) {
    HistoryEntry entry = make_history_entry(lease, {}, Ending::running);
    set_host_and_user(entry, harbour);
    new_leases.push_back(std::move(entry));
  }
  copy_known_gpu_names(new_leases, history.entries);
  for (HistoryEntry& entry : new_leases) {
    if (filter(entry)) history.entries.push_back(std::move(entry));
  }
  sort_by_grant(history.entries);
  return history;
}

Result<CompactHistory> read_merged_leases(const HarbourLocation& harbour, TimePoint since,
                                          const LeaseFilter& filter) {
  const auto matches = [&](const EntryView& view) {
    return filter.matches(view.uid, view.user, view.host);
  };
  send_unsent_history(harbour);
  const LiveLeases before = TRY(read_live_leases(harbour));
  Result<CompactHistory> history;
  if (harbour.url) {
    history = read_cluster_leases(harbour, since, matches, before);
  } else if (filter.host.empty()) {
    history = read_compact_history(archive_path(harbour), since, filter.uid);
  }
  if (!history) return history;
  const LiveLeases live = TRY(read_live_leases(harbour));
  std::vector<HistoryEntry> running;
  for (const auto& [key, lease] : live.local) {
    HistoryEntry entry = make_history_entry(lease, {}, Ending::running);
    set_host_and_user(entry, harbour);
    if (matches(make_entry_view(entry))) running.push_back(std::move(entry));
  }
  std::set<LeaseKey> recent = before.remote;
  for (const auto& [key, lease] : before.local) recent.insert(key);
  history->table.apply_live_leases(running, live.remote, std::chrono::system_clock::now(), recent);
  return history;
}

void archive_dead_leases(const HarbourLocation& harbour, const std::vector<Record>& leases,
                         const std::vector<Gpu>& gpus) {
  constexpr std::size_t kMaxLeasesPerUser = 16;
  const auto is_known = [&](const std::string& uuid) { return find_gpu(gpus, uuid) != nullptr; };
  std::map<uid_t, std::size_t> written;
  for (const Record& lease : leases) {
    if (lease.uid != ::geteuid()) {
      const std::set<std::string> distinct(lease.uuids.begin(), lease.uuids.end());
      const bool plausible = !lease.uuids.empty() && distinct.size() == lease.uuids.size() &&
                             std::all_of(lease.uuids.begin(), lease.uuids.end(), is_known);
      if (!plausible || ++written[lease.uid] > kMaxLeasesPerUser) continue;
    }
    (void)archive_entry(harbour, make_history_entry(lease, gpus, Ending::lost));
  }
}

}  // namespace berth
