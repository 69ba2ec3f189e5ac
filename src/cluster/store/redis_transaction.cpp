// Reading and changing a Redis harbour; see redis_transaction.h.
#include "cluster/store/redis_transaction.h"

#include <algorithm>
#include <fcntl.h>
#include <fmt/format.h>
#include <set>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/uid_map.h"
#include "harbour/bell.h"
#include "harbour/file_names.h"

namespace berth {
namespace {

using std::chrono::milliseconds;

// The order of a ticket that has no place yet: behind all others.
constexpr std::uint64_t kEndOfQueue = 999'999'999'999'999;
// A lease that is this old and not in Redis was lost there. The commit of a younger lease may not
// have arrived yet.
constexpr std::chrono::seconds kMinLostLeaseAge(30);

Error other_directory_error(const char* command, const std::string& id) {
  return {ErrorKind::usage,
          fmt::format("lease {1} belongs to a container with its own BERTH_DIR; run "
                      "'berth {0} {1}' there",
                      command, id)};
}

}  // namespace

RedisTransaction::RedisTransaction(RedisHostStore& store, StoreSnapshot snapshot,
                                   std::unique_ptr<DirectoryTransaction> local,
                                   std::string directory_id)
    : store_(store),
      snapshot_(std::move(snapshot)),
      local_(std::move(local)),
      directory_id_(std::move(directory_id)),
      lease_ids_(local_->lease_ids()) {
  for (StoreEntry& entry : snapshot_.leases) {
    if (!is_id(entry.id)) {
      ignore_entry(entry, EntryKind::lease, std::nullopt, "its name is not an id");
      continue;
    }
    const bool known =
        std::find(lease_ids_.begin(), lease_ids_.end(), entry.id) != lease_ids_.end();
    if (!known) lease_ids_.push_back(entry.id);
    std::string id = entry.id;
    leases_.emplace(std::move(id), std::move(entry));
  }
  for (StoreEntry& entry : snapshot_.tickets) {
    std::string id = entry.id;
    tickets_.emplace(std::move(id), std::move(entry));
  }
  for (const IgnoredEntry& entry : local_->ignored_entries()) ignored_entries_.push_back(entry);
}

void RedisTransaction::ignore_entry(const StoreEntry& entry, EntryKind kind,
                                    std::optional<uid_t> owner, std::string problem,
                                    bool leftover) {
  ignored_entries_.push_back(
      {fmt::format("{} {}", kind == EntryKind::lease ? "lease" : "ticket", entry.id), owner,
       std::move(problem), leftover});
}

Result<std::optional<Client>> RedisTransaction::check_client(const StoreEntry& entry,
                                                             EntryKind kind) {
  auto record = parse_shared_record(entry.record);
  if (!record) {
    ignore_entry(
        entry, kind, std::nullopt,
        entry.record.empty() ? "its record is missing or too large" : record.error().message);
    const bool silent = entry.time_left <= milliseconds(0);
    if (silent && kind == EntryKind::ticket) {
      dead_tickets_.push_back(entry.id);
      change_.silent_clients.push_back(entry.id);
    }
    return std::nullopt;
  }
  if (record->id != entry.id) {
    ignore_entry(entry, kind, std::nullopt, "its record names another id");
    return std::nullopt;
  }
  const bool holds = !record->uuids.empty() || record->holds_all_gpus;
  if (record->version <= kProtocolVersion && holds != (kind == EntryKind::lease)) {
    ignore_entry(entry, kind, record->uid,
                 kind == EntryKind::lease ? "its record is that of a ticket"
                                          : "its record is that of a lease");
    return std::nullopt;
  }
  const bool has_local_bell = !directory_id_.empty() && record->directory_id == directory_id_;
  if (has_local_bell) return check_client_by_bell(entry, std::move(*record), kind);
  if (entry.time_left <= milliseconds(0)) {
    ignore_entry(entry, kind, record->uid, "its client has sent no heartbeat for too long", true);
    change_.silent_clients.push_back(entry.id);
    if (kind == EntryKind::lease) dead_leases_.emplace_back(entry.record, *record);
    if (kind == EntryKind::ticket) dead_tickets_.push_back(entry.id);
    return std::nullopt;
  }
  record->sampled = false;  // only its own host knows whether its GPUs are used
  return Client{std::move(*record), {}, entry.unanswered, entry.time_left};
}

Result<std::optional<Client>> RedisTransaction::check_client_by_bell(const StoreEntry& entry,
                                                                     Record record,
                                                                     EntryKind kind) {
  // The owner is that of the bell, which the kernel knows: the record in Redis may be forged.
  struct stat about {};
  const std::string name = bell_file_name(entry.id);
  const bool there = ::fstatat(local_->directory(), name.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0;
  if (there) record.uid = about.st_uid;
  if (kind == EntryKind::lease &&
      has_ended_flag(local_->directory(), entry.id, std::nullopt, record.uid)) {
    ignore_entry(entry, kind, record.uid, "the lease was ended");
    return std::nullopt;
  }
  PeerBell bell = TRY(open_bell(local_->directory(), entry.id, record.uid));
  if (bell.counts_as_alive()) {
    return Client{std::move(record), std::move(bell.write_end), entry.unanswered, std::nullopt};
  }
  const bool dead = bell.state == PeerBell::State::dead;
  ignore_entry(entry, kind, record.uid, dead ? "its process is gone" : bell.problem, dead);
  if (dead && kind == EntryKind::lease) dead_leases_.emplace_back(entry.record, std::move(record));
  if (dead && kind == EntryKind::ticket) dead_tickets_.push_back(entry.id);
  return std::nullopt;
}

// A lease with a file here counts whatever Redis says of it, and the kernel says whose file it is.
// This only keeps its entry in Redis alive, for the other hosts.
void RedisTransaction::renew_heartbeat(Client& local) {
  const auto entry = leases_.find(local.record.id);
  if (entry == leases_.end()) return;
  if (entry->second.time_left < store_.url().ttl / 2) change_.heartbeats.push_back(local.record.id);
  local.unanswered = entry->second.unanswered;
}

Result<std::optional<Client>> RedisTransaction::read_lease(const std::string& id) {
  auto local = TRY(local_->read_lease(id));
  if (local) {
    renew_heartbeat(*local);
    return local;
  }
  const auto entry = leases_.find(id);
  if (entry == leases_.end()) return std::nullopt;
  return check_client(entry->second, EntryKind::lease);
}

Result<std::vector<Client>> RedisTransaction::read_leases() {
  std::vector<Client> found = TRY(local_->read_leases());
  restore_lost_leases(found);
  std::set<std::string> known;
  for (Client& client : found) {
    renew_heartbeat(client);
    known.insert(client.record.id);
  }
  // A lease that has its file here is part of another one only if that one has its file here, too:
  // any client can write the record of an outer lease into Redis, and would hide the inner lease.
  for (Client& client : found) {
    if (!known.contains(client.record.parent_lease)) client.record.parent_lease.clear();
  }
  for (const auto& [id, entry] : leases_) {
    if (known.contains(id)) continue;
    auto lease = TRY(check_client(entry, EntryKind::lease));
    if (lease) found.push_back(std::move(*lease));
  }
  return found;
}

// The holder restores its lease, too. But it may do so only at its next heartbeat, or it was killed
// and only its job lives.
void RedisTransaction::restore_lost_leases(const std::vector<Client>& local) {
  const TimePoint now = std::chrono::system_clock::now();
  for (const Client& client : local) {
    const Record& record = client.record;
    const bool ours = record.epoch > 0 && record.directory_id == directory_id_;
    if (!ours || leases_.contains(record.id) || now - record.granted < kMinLostLeaseAge) continue;
    if (!uid_outside(record.uid)) continue;  // other hosts could not identify its owner
    const auto known =
        std::find_if(change_.leases_to_restore.begin(), change_.leases_to_restore.end(),
                     [&](const auto& one) { return one.first == record.id; });
    if (known == change_.leases_to_restore.end()) {
      change_.leases_to_restore.emplace_back(record.id, format_shared_record(record));
    }
  }
}

Result<std::optional<Client>> RedisTransaction::read_ticket(const TicketName& name) {
  // A ticket that this transaction ends has left the queue: ring_front() must ring the next one.
  const auto& ended = change_.tickets_to_end;
  if (std::find(ended.begin(), ended.end(), name.id) != ended.end()) return std::nullopt;
  const auto entry = tickets_.find(name.id);
  if (entry != tickets_.end()) return check_client(entry->second, EntryKind::ticket);
  if (snapshot_.has_all_tickets) return std::nullopt;
  // Under the lock no client waits for the server. The next transaction reads more of the queue.
  const auto index = std::lower_bound(queue().begin(), queue().end(), name) - queue().begin();
  store_.extend_ticket_range(snapshot_, static_cast<std::size_t>(index));
  needs_more_tickets_ = true;
  return fail(ErrorKind::unavailable, "only a part of the queue was read; try again");
}

Result<std::vector<Drain>> RedisTransaction::read_drains() {
  std::vector<Drain> found;
  for (const auto& [uuid, text] : snapshot_.drains) {
    auto drain = parse_shared_drain(uuid, text);
    if (drain) {
      found.push_back(std::move(*drain));
    } else {
      ignored_entries_.push_back(
          {fmt::format("drain of {}", uuid), std::nullopt, drain.error().message, false});
      found.push_back(unreadable_drain(uuid));
    }
  }
  // Drains that were made on this host without Redis.
  std::vector<Drain> local = TRY(local_->read_drains());
  for (Drain& drain : local) {
    const bool known = std::any_of(found.begin(), found.end(),
                                   [&](const Drain& one) { return one.uuid == drain.uuid; });
    if (!known) found.push_back(std::move(drain));
  }
  return found;
}

bool RedisTransaction::is_ended(const std::string& id, const std::optional<TicketName>& ticket) {
  return ticket ? snapshot_.ended : local_->is_ended(id, ticket);
}

Result<std::uint64_t> RedisTransaction::next_file_number() {
  return kEndOfQueue;
}

Result<void> RedisTransaction::replace_lease(const Record& record) {
  // Any client of Redis can write a lease in this user's name: no file is made for it here.
  if (!TRY(local_->read_lease(record.id)))
    return tl::make_unexpected(other_directory_error("extend", record.id));
  TRY(local_->replace_lease(record));
  change_.leases_to_replace.emplace_back(record.id, format_shared_record(record));
  return {};
}

Result<void> RedisTransaction::write_lease(const Record& record) {
  // Into the directory first, under the lock of this host, so that every client that decides
  // meanwhile sees it. If Redis refuses the lease, withdraw_lease() removes the file.
  TRY(local_->write_lease(record));
  written_lease_id_ = record.id;
  change_.id = record.id;
  change_.lease = format_shared_record(record);
  change_.version = snapshot_.version;
  change_.server_epoch = snapshot_.server_epoch;
  change_.grants_resume_at = snapshot_.grants_resume_at;
  change_.epoch = record.epoch;
  const bool queued = std::any_of(queue().begin(), queue().end(),
                                  [&](const TicketName& name) { return name.id == record.id; });
  if (!queued && record.parent_lease.empty() && !change_.replaced_ticket)
    change_.tail = snapshot_.tail;
  return {};
}

Result<void> RedisTransaction::write_ticket(const Record& record, std::uint64_t order) {
  change_.id = record.id;
  change_.ticket = format_shared_record(record);
  change_.leave_queue = false;
  if (order != kEndOfQueue) change_.order = order;
  const TicketName name{order, record.id, order};
  auto& queue = snapshot_.queue;
  std::erase_if(queue, [&](const TicketName& one) { return one.id == record.id; });
  queue.insert(std::upper_bound(queue.begin(), queue.end(), name), name);
  return {};
}

void RedisTransaction::remove_ticket(const TicketName& name) {
  std::erase(snapshot_.queue, name);
  change_.id = name.id;
  change_.ticket.reset();
  change_.leave_queue = true;
}

Result<void> RedisTransaction::write_drain(const Drain& drain) {
  change_.version = snapshot_.version;
  change_.drains.emplace_back(drain.uuid, berth::format_drain(drain));
  return {};
}

Result<bool> RedisTransaction::remove_drain(const std::string& uuid) {
  const bool there = std::any_of(snapshot_.drains.begin(), snapshot_.drains.end(),
                                 [&](const auto& drain) { return drain.first == uuid; });
  change_.version = snapshot_.version;
  if (there) change_.undrains.push_back(uuid);
  const bool was_local = TRY(local_->remove_drain(uuid));
  return there || was_local;
}

Result<void> RedisTransaction::end_ticket(const TicketName& name) {
  change_.tickets_to_end.push_back(name.id);
  return {};
}

Result<void> RedisTransaction::end_lease(const Client& lease) {
  const std::string& id = lease.record.id;
  auto local = TRY(local_->read_lease(id));
  if (!local) {
    return tl::make_unexpected(other_directory_error("release", id));
  }
  // The kernel lets only the owner and root do this.
  TRY(local_->end_lease(*local));
  local_bells_to_ring_.push_back(std::move(local->bell));
  if (const auto entry = leases_.find(id); entry != leases_.end()) {
    change_.leases_to_remove.emplace_back(id, entry->second.record);
  }
  return {};
}

void RedisTransaction::ring(const Client& client) {
  change_.rings.push_back(client.record.id);
}

void RedisTransaction::remove_leftovers() {
  for (const auto& [text, record] : dead_leases_) {
    const std::pair entry(record.id, text);
    if (std::find(change_.leases_to_remove.begin(), change_.leases_to_remove.end(), entry) ==
        change_.leases_to_remove.end()) {
      change_.leases_to_remove.push_back(entry);
    }
  }
  change_.tickets_to_remove.insert(change_.tickets_to_remove.end(), dead_tickets_.begin(),
                                   dead_tickets_.end());
  local_->remove_leftovers();
}

void RedisTransaction::withdraw_lease() {
  if (!written_lease_id_) return;
  ::unlinkat(local_->directory(), lease_file_name(*written_lease_id_).c_str(), 0);
  // Clients that have counted it meanwhile wait for nothing: wake the first ones.
  store_.ring_front();
  (void)local_->ring_front();
}

Result<bool> RedisTransaction::commit() {
  local_->unlock();
  for (const Record& record : local_->removed_leases()) {
    // Leases with an epoch are in Redis, too: the client that removes them there reports them.
    if (record.epoch == 0) removed_leases_.push_back(record);
  }
  if (!change_.is_empty()) {
    const auto outcome = store_.commit(change_);
    if (!outcome || !outcome->committed) {
      withdraw_lease();
      if (!outcome) return tl::make_unexpected(outcome.error());
      return false;
    }
    order_ = outcome->order;
    for (auto& dead : dead_leases_) {
      Record& record = dead.second;
      const auto& removed = outcome->removed;
      const bool ours = std::find(removed.begin(), removed.end(), record.id) != removed.end();
      const bool known = std::any_of(removed_leases_.begin(), removed_leases_.end(),
                                     [&](const Record& one) { return one.id == record.id; });
      if (ours && !known) removed_leases_.push_back(std::move(record));
    }
  }
  for (const UniqueFd& bell : local_bells_to_ring_) berth::ring(bell.get());
  return true;
}

TicketName RedisTransaction::current_ticket_name(const TicketName& written) const {
  const std::uint64_t order = order_.value_or(written.order);
  return {order, written.id, order};
}

}  // namespace berth
