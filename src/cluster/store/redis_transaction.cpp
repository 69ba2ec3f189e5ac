// Reading and changing of a Redis harbour; see redis_transaction.h.
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

namespace berth {
namespace {

using std::chrono::milliseconds;

// Of a ticket that has not been given its place yet: behind everybody.
constexpr std::uint64_t kAtTheEnd = 999'999'999'999'999;
// A lease that is so old, and not in Redis, was lost there; one that is younger may just be on its
// way.
constexpr std::chrono::seconds kOnItsWay(30);

}  // namespace

RedisTransaction::RedisTransaction(RedisHostStore& part, StoreSnapshot sight,
                                   std::unique_ptr<DirectoryTransaction> here, std::string directory_id)
    : part_(part),
      sight_(std::move(sight)),
      here_(std::move(here)),
      witness_(std::move(directory_id)),
      lease_ids_(here_->lease_ids()) {
  for (StoreEntry& entry : sight_.leases) {
    if (!is_id(entry.id)) {
      ignore(entry, Kind::lease, std::nullopt, "its name is not an id");
      continue;
    }
    const bool known =
        std::find(lease_ids_.begin(), lease_ids_.end(), entry.id) != lease_ids_.end();
    if (!known) lease_ids_.push_back(entry.id);
    std::string id = entry.id;
    leases_.emplace(std::move(id), std::move(entry));
  }
  for (StoreEntry& entry : sight_.tickets) {
    std::string id = entry.id;
    tickets_.emplace(std::move(id), std::move(entry));
  }
  for (const IgnoredEntry& oddity : here_->ignored_entries()) oddities_.push_back(oddity);
}

void RedisTransaction::ignore(const StoreEntry& entry, Kind kind, std::optional<uid_t> owner,
                              std::string problem, bool leftover) {
  oddities_.push_back({fmt::format("{} {}", kind == Kind::lease ? "lease" : "ticket", entry.id),
                       owner, std::move(problem), leftover});
}

Result<std::optional<Client>> RedisTransaction::judge(const StoreEntry& entry, Kind kind) {
  auto record = read_shared_record(entry.record);
  if (!record) {
    ignore(
        entry, kind, std::nullopt,
        entry.record.empty() ? "its record is missing, or far too large" : record.error().message);
    const bool silent = entry.left <= milliseconds(0);
    if (silent && kind == Kind::ticket) {
      dead_tickets_.push_back(entry.id);
      change_.silent.push_back(entry.id);
    }
    return std::nullopt;
  }
  if (record->id != entry.id) {
    ignore(entry, kind, std::nullopt, "it names another id than it has");
    return std::nullopt;
  }
  const bool holds = !record->uuids.empty() || record->everything;
  if (record->version <= kProtocolVersion && holds != (kind == Kind::lease)) {
    ignore(entry, kind, record->uid, "its state is another one's");
    return std::nullopt;
  }
  const bool heard_here = !witness_.empty() && record->directory_id == witness_;
  if (heard_here) return judge_by_bell(entry, std::move(*record), kind);
  if (entry.left <= milliseconds(0)) {
    ignore(entry, kind, record->uid, "nothing was heard of its host for long", true);
    change_.silent.push_back(entry.id);
    if (kind == Kind::lease) dead_.emplace_back(entry.record, *record);
    if (kind == Kind::ticket) dead_tickets_.push_back(entry.id);
    return std::nullopt;
  }
  record->sampled = false;  // whether it is used, only its own host can tell
  return Client{std::move(*record), {}, entry.unheard, entry.left};
}

Result<std::optional<Client>> RedisTransaction::judge_by_bell(const StoreEntry& entry, Record record,
                                                              Kind kind) {
  // Its owner is the bell's, by the kernel: what Redis says of it may be forged.
  struct stat about {};
  const std::string name = bell_name(entry.id);
  const bool there = ::fstatat(here_->directory(), name.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0;
  if (there) record.uid = about.st_uid;
  if (kind == Kind::lease && was_ended(here_->directory(), entry.id, std::nullopt, record.uid)) {
    ignore(entry, kind, record.uid, "it was ended");
    return std::nullopt;
  }
  auto bell = open_bell(here_->directory(), entry.id, record.uid);
  if (!bell) return tl::make_unexpected(bell.error());
  if (bell->counts()) {
    return Client{std::move(record), std::move(bell->end), entry.unheard, std::nullopt};
  }
  const bool dead = bell->state == PeerBell::State::dead;
  ignore(entry, kind, record.uid, dead ? "its process is gone" : bell->problem, dead);
  if (dead && kind == Kind::lease) dead_.emplace_back(entry.record, std::move(record));
  if (dead && kind == Kind::ticket) dead_tickets_.push_back(entry.id);
  return std::nullopt;
}

// What lies here is the kernel's word, also whose it is: it counts whatever Redis says of it.
void RedisTransaction::beat_for(Client& here) {
  const auto entry = leases_.find(here.record.id);
  if (entry == leases_.end()) return;
  if (entry->second.left < part_.url().ttl / 2) change_.beats.push_back(here.record.id);
  here.unheard = entry->second.unheard;
}

Result<std::optional<Client>> RedisTransaction::lease(const std::string& id) {
  auto here = here_->lease(id);
  if (!here) return here;
  if (*here) {
    beat_for(**here);
    return here;
  }
  const auto entry = leases_.find(id);
  if (entry == leases_.end()) return std::nullopt;
  return judge(entry->second, Kind::lease);
}

Result<std::vector<Client>> RedisTransaction::leases() {
  auto here = here_->leases();
  if (!here) return here;
  put_back_lost(*here);
  std::set<std::string> known;
  for (Client& client : *here) {
    beat_for(client);
    known.insert(client.record.id);
  }
  // A lease that has its file here is part of another one only if that has its file here, too: any
  // client can write the record of an outer lease into Redis, and would so hide the inner one.
  for (Client& client : *here) {
    if (!known.contains(client.record.within)) client.record.within.clear();
  }
  std::vector<Client> found = std::move(*here);
  for (const auto& [id, entry] : leases_) {
    if (known.contains(id)) continue;
    auto one = judge(entry, Kind::lease);
    if (!one) return tl::make_unexpected(one.error());
    if (*one) found.push_back(std::move(**one));
  }
  return found;
}

// Its holder does it, too, but that may take until its next beat, or it was killed and only its job
// lives.
void RedisTransaction::put_back_lost(const std::vector<Client>& here) {
  const TimePoint now = std::chrono::system_clock::now();
  for (const Client& client : here) {
    const Record& record = client.record;
    const bool ours = record.epoch > 0 && record.directory_id == witness_;
    if (!ours || leases_.contains(record.id) || now - record.granted < kOnItsWay) continue;
    if (!uid_outside(record.uid)) continue;  // whose it is, other hosts could not tell
    const auto known = std::find_if(change_.put_back.begin(), change_.put_back.end(),
                                    [&](const auto& one) { return one.first == record.id; });
    if (known == change_.put_back.end()) {
      change_.put_back.emplace_back(record.id, write_shared_record(record));
    }
  }
}

Result<std::optional<Client>> RedisTransaction::ticket(const TicketName& name) {
  const auto entry = tickets_.find(name.id);
  if (entry != tickets_.end()) return judge(entry->second, Kind::ticket);
  if (sight_.all_tickets) return std::nullopt;
  // The server is not asked under the lock. The next transaction has more of the queue.
  const auto index = std::lower_bound(queue().begin(), queue().end(), name) - queue().begin();
  part_.read_further(sight_, static_cast<std::size_t>(index));
  lacks_tickets_ = true;
  return fail(ErrorKind::unavailable, "the queue is longer than what was read of it; try again");
}

Result<std::vector<Drain>> RedisTransaction::drains() {
  std::vector<Drain> found;
  for (const auto& [uuid, text] : sight_.drains) {
    auto drain = read_drain(text);
    if (drain && drain->uuid == uuid) {
      found.push_back(std::move(*drain));
    } else {
      oddities_.push_back({fmt::format("drain of {}", uuid), std::nullopt,
                           drain ? "it names another GPU" : drain.error().message, false});
      // Unknown is not free: somebody wanted it out of service.
      found.push_back({uuid, 0, "its drain cannot be read", {}});
    }
  }
  // Of who does not use Redis yet, on this host.
  auto here = here_->drains();
  if (!here) return here;
  for (Drain& drain : *here) {
    const bool known = std::any_of(found.begin(), found.end(),
                                   [&](const Drain& one) { return one.uuid == drain.uuid; });
    if (!known) found.push_back(std::move(drain));
  }
  return found;
}

bool RedisTransaction::is_ended(const std::string& id, const std::optional<TicketName>& ticket) {
  return ticket ? sight_.ended : here_->is_ended(id, ticket);
}

Result<std::uint64_t> RedisTransaction::next_order() {
  return kAtTheEnd;
}

Result<void> RedisTransaction::write_lease(const Record& record) {
  // Here first, under the lock of this host: who decides meanwhile sees it. If Redis refuses it, it
  // is withdrawn.
  if (auto written = here_->write_lease(record); !written) return written;
  lease_file_ = record.id;
  change_.id = record.id;
  change_.lease = write_shared_record(record);
  change_.version = sight_.version;
  change_.server_epoch = sight_.server_epoch;
  change_.settled = sight_.settled;
  change_.epoch = record.epoch;
  const bool queued = std::any_of(queue().begin(), queue().end(),
                                  [&](const TicketName& name) { return name.id == record.id; });
  if (!queued && record.within.empty() && !change_.instead_of) change_.tail = sight_.tail;
  return {};
}

Result<void> RedisTransaction::write_ticket(const Record& record, std::uint64_t order) {
  change_.id = record.id;
  change_.ticket = write_shared_record(record);
  change_.leave = false;
  if (order != kAtTheEnd) change_.order = order;
  const TicketName name{order, record.id, order};
  auto& queue = sight_.queue;
  std::erase_if(queue, [&](const TicketName& one) { return one.id == record.id; });
  queue.insert(std::upper_bound(queue.begin(), queue.end(), name), name);
  return {};
}

void RedisTransaction::remove_ticket(const TicketName& name) {
  std::erase(sight_.queue, name);
  change_.id = name.id;
  change_.ticket.reset();
  change_.leave = true;
}

Result<void> RedisTransaction::write_drain(const Drain& drain) {
  change_.version = sight_.version;
  change_.drains.emplace_back(drain.uuid, berth::write_drain(drain));
  return {};
}

Result<bool> RedisTransaction::remove_drain(const std::string& uuid) {
  const bool there = std::any_of(sight_.drains.begin(), sight_.drains.end(),
                                 [&](const auto& drain) { return drain.first == uuid; });
  change_.version = sight_.version;
  if (there) change_.undrains.push_back(uuid);
  auto here = here_->remove_drain(uuid);
  if (!here) return here;
  return there || *here;
}

Result<void> RedisTransaction::end_ticket(const TicketName& name) {
  change_.ended.push_back(name.id);
  return {};
}

Result<void> RedisTransaction::end_lease(const Client& lease) {
  const std::string& id = lease.record.id;
  auto here = here_->lease(id);
  if (!here) return tl::make_unexpected(here.error());
  if (!*here) {
    return fail(ErrorKind::usage,
                fmt::format("lease {0} was made in a container with a BERTH_DIR of its own; run "
                            "'berth release {0}' there",
                            id));
  }
  // The kernel lets its owner and root do this.
  if (auto ended = here_->end_lease(**here); !ended) return ended;
  rung_here_.push_back(std::move((*here)->bell));
  if (const auto entry = leases_.find(id); entry != leases_.end()) {
    change_.remove.emplace_back(id, entry->second.record);
  }
  return {};
}

void RedisTransaction::ring(const Client& client) {
  change_.rings.push_back(client.record.id);
}

void RedisTransaction::tidy() {
  for (const auto& [text, record] : dead_) {
    const std::pair entry(record.id, text);
    if (std::find(change_.remove.begin(), change_.remove.end(), entry) == change_.remove.end()) {
      change_.remove.push_back(entry);
    }
  }
  change_.remove_tickets.insert(change_.remove_tickets.end(), dead_tickets_.begin(),
                                dead_tickets_.end());
  here_->tidy();
}

void RedisTransaction::withdraw() {
  if (!lease_file_) return;
  ::unlinkat(here_->directory(), lease_name(*lease_file_).c_str(), 0);
  // Who has counted it meanwhile waits for nothing.
  part_.ring_front();
  (void)here_->ring_front();
}

Result<bool> RedisTransaction::commit() {
  here_->unlock();
  for (const Record& record : here_->cleared()) {
    if (record.epoch == 0) cleared_.push_back(record);  // the others are in Redis, too
  }
  if (!change_.is_empty()) {
    const auto outcome = part_.commit(change_);
    if (!outcome || !outcome->done) {
      withdraw();
      if (!outcome) return tl::make_unexpected(outcome.error());
      return false;
    }
    order_ = outcome->order;
    for (auto& dead : dead_) {
      Record& record = dead.second;
      const auto& removed = outcome->removed;
      const bool ours = std::find(removed.begin(), removed.end(), record.id) != removed.end();
      const bool known = std::any_of(cleared_.begin(), cleared_.end(),
                                     [&](const Record& one) { return one.id == record.id; });
      if (ours && !known) cleared_.push_back(std::move(record));
    }
  }
  for (const UniqueFd& bell : rung_here_) berth::ring(bell.get());
  return true;
}

TicketName RedisTransaction::place(const TicketName& written) const {
  const std::uint64_t order = order_.value_or(written.order);
  return {order, written.id, order};
}

}  // namespace berth
