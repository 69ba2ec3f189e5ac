// Leases as the history has them; see archiving.h.
#include "lease/lease_history.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <map>
#include <set>
#include <unistd.h>
#include <utility>

#include "base/configuration.h"
#include "base/uid_map.h"
#include "base/users.h"
#include "cluster/redis/session.h"
#include "cluster/store/history_stream.h"
#include "cluster/store/unsent_history.h"
#include "harbour/harbour.h"

namespace berth {
namespace {

struct LiveLeases {
  std::map<LeaseKey, Record> here;
  std::set<LeaseKey> elsewhere;              // on other hosts
  TimePoint first_grant = TimePoint::max();  // of all of them

  bool contains(const LeaseKey& key) const { return here.contains(key) || elsewhere.contains(key); }
};

// What a history of several hosts calls this one. In that of one, nobody needs a name.
std::string name_here(const HarbourLocation& harbour) {
  return harbour.url ? harbour.host : "";
}

// Of a user of this process's user namespace, as other hosts know them.
uid_t shared_uid(uid_t uid) {
  return uid_outside(uid).value_or(uid);
}

// As a history of several hosts has it.
void tell_where(HistoryEntry& entry, const HarbourLocation& harbour) {
  if (!harbour.url) return;
  entry.host = harbour.host;
  entry.user = user_name(entry.uid);
  entry.uid = shared_uid(entry.uid);
}

// Of each other host, those whose beats are heard.
Result<void> look_elsewhere(const HarbourLocation& where, LiveLeases& leases) {
  const auto hosts =
      RedisSession(*where.url).call({"HKEYS", fmt::format("{}:hosts", where.url->prefix)});
  if (!hosts) return tl::make_unexpected(hosts.error());
  for (const Reply& host : hosts->list()) {
    if (host.text() == where.host || !is_host_name(host.text())) continue;
    const auto sight = RedisHostStore(*where.url, host.text()).look("", "");
    if (!sight) return tl::make_unexpected(sight.error());
    for (const StoreEntry& lease : sight->leases) {
      const auto record = read_record(lease.record);
      if (!record || lease.left.count() <= 0) continue;
      leases.first_grant = std::min(leases.first_grant, record->granted);
      leases.elsewhere.insert({host.text(), record->uid, record->id});
    }
  }
  return {};
}

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
    leases.first_grant = std::min(leases.first_grant, client.record.granted);
    const uid_t uid = where.url ? shared_uid(client.record.uid) : client.record.uid;
    LeaseKey key{name_here(where), uid, client.record.id};
    leases.here.emplace(std::move(key), std::move(client.record));
  }
  transaction->reset();  // its lock, before anybody is asked again
  if (!where.url) return leases;
  if (auto looked = look_elsewhere(where, leases); !looked) {
    return tl::make_unexpected(looked.error());
  }
  return leases;
}

Result<History> read_history(const HarbourLocation& harbour, TimePoint since,
                             const WantEntry& want) {
  if (harbour.url) return read_all_history(*harbour.url, since, want);
  return read_all_history(archive_path(harbour), since, want);
}

// What this user's commands could not send.
void send_kept(const HarbourLocation& harbour) {
  if (!harbour.url) return;
  const auto folder = existing_folder(archive_path(harbour));
  if (folder) (void)send_unsent(*folder, *harbour.url);
}

// Of all hosts. Of what runs elsewhere, nothing is known but what was written when it began.
Result<LeaseHistory> read_sent_leases(const HarbourLocation& harbour, TimePoint since,
                                      const WantView& wants) {
  send_kept(harbour);
  const auto running = live_leases(harbour);
  if (!running) return tl::make_unexpected(running.error());
  const std::int64_t since_ms = to_ms(since);
  return read_leases(*harbour.url, std::min(since, running->first_grant),
                     [&](const EntryView& view) {
                       if (!wants(view)) return false;
                       return view.ended_ms >= since_ms || running->contains(key_of(view));
                     });
}

void send(const HarbourLocation& harbour, HistoryEntry entry, const UserFolder* folder) {
  tell_where(entry, harbour);
  const std::string line = write_entry(entry);
  if (folder != nullptr && keep_unsent(*folder, line)) {
    (void)send_unsent(*folder, *harbour.url);
    return;
  }
  // There is nothing to keep it in: now or never.
  RedisSession server(*harbour.url);
  if (!server.was_just_away()) (void)send_lines(server, *harbour.url, {line});
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
  Result<void> written;
  if (folder) {
    written = append_history(*folder, entry);
  } else {
    written = tl::make_unexpected(folder.error());
  }
  if (harbour.url) send(harbour, entry, folder ? &*folder : nullptr);
  return written;
}

bool LeaseFilter::wants(uid_t whose, std::string_view name, std::string_view where) const {
  if (!host.empty() && where != host) return false;
  if (name.empty()) return !uid || whose == *uid;
  return user.empty() || name == user;
}

Result<History> recall(const HarbourLocation& harbour, TimePoint since, const WantEntry& want) {
  send_kept(harbour);
  // What runs now has begun at any time before; what is written of it knows the names of its GPUs.
  const auto running = live_leases(harbour);
  if (!running) return tl::make_unexpected(running.error());
  const TimePoint first = std::min(since, running->first_grant);
  const auto concerns = [&](const HistoryEntry& entry) {
    return (entry.ended >= since || running->contains(key_of(entry))) && want(entry);
  };
  auto history = read_history(harbour, first, concerns);
  if (!history) return tl::make_unexpected(history.error());
  // Again, after the history: what ends in between is still running, rather than lost.
  auto live = live_leases(harbour);
  if (!live) return tl::make_unexpected(live.error());
  const TimePoint now = std::chrono::system_clock::now();
  for (HistoryEntry& entry : history->entries) {
    const LeaseKey key = key_of(entry);
    if (live->here.erase(key) > 0 || live->elsewhere.contains(key)) {
      goes_on(entry, now);
    } else if (entry.ending == Ending::running) {
      entry.ending = Ending::lost;
    }
  }
  for (const auto& [key, lease] : live->here) {
    HistoryEntry entry = history_entry(lease, {}, Ending::running);
    tell_where(entry, harbour);
    for (HistoryGpu& gpu : entry.gpus) name_as_others(gpu, history->entries);
    if (want(entry)) history->entries.push_back(std::move(entry));
  }
  sort_by_grant(history->entries);
  return history;
}

Result<LeaseHistory> recall_leases(const HarbourLocation& harbour, TimePoint since,
                                   const LeaseFilter& filter) {
  const auto wants = [&](const EntryView& view) {
    return filter.wants(view.uid, view.user, view.host);
  };
  Result<LeaseHistory> history;
  if (harbour.url) {
    history = read_sent_leases(harbour, since, wants);
  } else if (filter.host.empty()) {
    history = read_leases(archive_path(harbour), since, filter.uid);
  }
  if (!history) return history;
  const auto live = live_leases(harbour);
  if (!live) return tl::make_unexpected(live.error());
  std::vector<HistoryEntry> running;
  for (const auto& [key, lease] : live->here) {
    HistoryEntry entry = history_entry(lease, {}, Ending::running);
    tell_where(entry, harbour);
    if (wants(view_of(entry))) running.push_back(std::move(entry));
  }
  history->table.settle(running, live->elsewhere, std::chrono::system_clock::now());
  return history;
}

void archive_dead(const HarbourLocation& harbour, const std::vector<Record>& leases,
                  const std::vector<Gpu>& gpus) {
  constexpr std::size_t kMostOfUser = 16;
  const auto is_known = [&](const std::string& uuid) {
    return std::any_of(gpus.begin(), gpus.end(), [&](const Gpu& gpu) { return gpu.uuid == uuid; });
  };
  std::map<uid_t, std::size_t> written;
  for (const Record& lease : leases) {
    if (lease.uid != ::geteuid()) {
      const std::set<std::string> distinct(lease.uuids.begin(), lease.uuids.end());
      const bool plausible = !lease.uuids.empty() && distinct.size() == lease.uuids.size() &&
                             std::all_of(lease.uuids.begin(), lease.uuids.end(), is_known);
      if (!plausible || ++written[lease.uid] > kMostOfUser) continue;
    }
    (void)archive(harbour, history_entry(lease, gpus, Ending::lost));
  }
}

}  // namespace berth
