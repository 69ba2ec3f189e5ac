// Reads and writes the files of the harbour's directory; see directory_transaction.h and
// docs/harbour-protocol.md.
#include "harbour/directory_transaction.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/users.h"
#include "harbour/bell.h"
#include "harbour/file_error.h"
#include "harbour/file_names.h"
#include "harbour/record_file.h"
#include "harbour/safe_directory.h"

namespace berth {
namespace {

// How many files one call of remove_leftovers() removes.
constexpr std::size_t kMaxRemovals = 256;
// Limits ignored_entries(), since a hostile user can create any number of files.
constexpr std::size_t kMaxIgnoredEntries = 1000;
// Descriptors that the bells of leases must leave for tickets, records, /proc and the lock.
constexpr rlim_t kSpareDescriptors = 64;

bool contains_sorted(const std::vector<std::string>& sorted, const std::string& id) {
  return std::binary_search(sorted.begin(), sorted.end(), id);
}

std::vector<std::string> sorted_ticket_ids(const std::vector<TicketName>& tickets) {
  std::vector<std::string> ids;
  ids.reserve(tickets.size());
  for (const TicketName& name : tickets) ids.push_back(name.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

bool DirectoryTransaction::is_ended(const std::string& id,
                                    const std::optional<TicketName>& ticket) {
  return has_ended_flag(directory(), id, ticket, ::geteuid());
}

DirectoryTransaction::DirectoryTransaction(PrivateFd lock) : lock_(std::move(lock)) {}

DirectoryTransaction::~DirectoryTransaction() {
  // Closing the descriptor does not unlock: a child that another thread has just forked has a copy
  // of it.
  unlock();
}

void DirectoryTransaction::unlock() {
  if (lock_ && std::exchange(locked_, false)) ::flock(lock_.get(), LOCK_UN);
}

Result<void> DirectoryTransaction::list() {
  ignored_entries_.clear();
  listing_ = TRY(list_directory(
      lock_.get(), [this](const std::string& file, std::optional<uid_t> owner,
                          std::string problem) { ignore(file, owner, std::move(problem)); }));
  return {};
}

void DirectoryTransaction::ignore_live(const std::string& file, uid_t owner, std::string problem) {
  if (ignored_entries_.size() >= kMaxIgnoredEntries) return;
  ignored_entries_.push_back({file, owner, std::move(problem), false, true});
}

void DirectoryTransaction::ignore(const std::string& file, std::optional<uid_t> owner,
                                  std::string problem, bool leftover) {
  const bool removable = leftover && (!owner || *owner == ::geteuid());
  if (ignored_entries_.size() >= kMaxIgnoredEntries && !removable) return;
  ignored_entries_.push_back({file, owner, std::move(problem), leftover});
}

// The owner is the one that the kernel reports. The bell is opened before the record is read, since
// a killed client may have left half a record.
Result<std::optional<DirectoryTransaction::LiveRecordFile>> DirectoryTransaction::find_live_record(
    const std::string& file, const std::string& id) {
  const std::optional<struct statx> file_info = TRY(stat_file(lock_.get(), file));
  if (!file_info) return std::nullopt;
  // The owner of a file under a mount point is unknown: then the bell's owner is taken.
  std::optional<uid_t> owner;
  if (!is_mount_point(*file_info)) owner = file_info->stx_uid;
  PeerBell bell = TRY(open_bell(lock_.get(), id, owner));
  if (!bell.counts_as_alive()) {
    const char* const type = find_file_problem(*file_info);
    const bool dead = bell.state == PeerBell::State::dead && type == nullptr;
    ignore(file, owner, dead ? "its process is gone" : type != nullptr ? type : bell.problem, dead);
    return std::nullopt;
  }
  FileContent content = TRY(read_file(lock_.get(), file, *file_info));
  return LiveRecordFile{*file_info, bell.owner, std::move(content), std::move(bell.write_end),
                        std::move(bell.problem)};
}

// A lease file beside a live bell of its owner counts, whatever it contains: a lease that cannot be
// understood may hold any GPU.
Result<std::optional<Client>> DirectoryTransaction::read_lease(const std::string& id) {
  const std::string file = lease_file_name(id);
  std::optional<LiveRecordFile> found = TRY(find_live_record(file, id));
  if (!found) return std::nullopt;
  const struct statx& file_info = found->file_info;
  const uid_t owner = found->owner;
  const FileContent& content = found->content;
  const auto ignore_record = [&](const char* problem) {
    ignore_live(file, owner, problem);
    return std::nullopt;
  };
  if (others_can_write(file_info)) return ignore_record("other users can write to it");
  // The bell may belong to another user's ticket, which must not count as a lease.
  if (is_mount_point(file_info) && has_ticket_with_id(id)) {
    ignore(file, std::nullopt, find_file_problem(file_info));
    return std::nullopt;
  }
  std::string problem = content.problem;
  auto record = parse_record(content.text);
  if (problem.empty() && !record) problem = record.error().message;
  const bool is_ticket = record && record->uuids.empty() && !record->holds_all_gpus;
  if (problem.empty() && is_ticket) return ignore_record("it is the record of a ticket");
  if (problem.empty() && record->id != id) problem = "its id differs from the id in its file name";
  if (!problem.empty()) {
    // Another user may have given any file of this owner the name of a lease, by a hard link.
    if (others_can_link() && file_info.stx_nlink > 1)
      return ignore_record("it is a hard link to another file");
    record = parse_damaged_lease(content.text, std::move(problem));
  } else if ((file_info.stx_mode & kEndedFlag) != 0 && record->holder == HolderKind::shell) {
    return ignore_record("it was ended");
  }
  if (record->problem.empty()) record->problem = found->bell_problem;
  record->id = id;
  record->uid = owner;
  record->last_used = TimePoint(std::chrono::seconds(clamp_file_time(file_info.stx_mtime.tv_sec)) +
                                std::chrono::nanoseconds(file_info.stx_mtime.tv_nsec));
  return Client{std::move(*record), std::move(found->bell)};
}

bool DirectoryTransaction::has_ticket_with_id(const std::string& id) const {
  return std::any_of(listing_.tickets.begin(), listing_.tickets.end(),
                     [&](const TicketName& name) { return name.id == id; });
}

Result<std::optional<Client>> DirectoryTransaction::read_ticket(const TicketName& name) {
  const std::string file = ticket_file_name(name);
  // A client with both a ticket and a lease is a lease. (If it was killed between writing the lease
  // and removing the ticket, its bell has no reader.)
  if (contains_sorted(listing_.leases, name.id)) {
    // Any user can create a file of that name, so only a readable lease takes the ticket's place.
    // It has the owner of the bell, as the ticket does.
    const std::optional<Client> lease = TRY(read_lease(name.id));
    if (lease && lease->record.problem.empty() && is_identified(lease->record.uid)) {
      ignore(file, std::nullopt, "it has become a lease", true);
      return std::nullopt;
    }
  }
  std::optional<LiveRecordFile> found = TRY(find_live_record(file, name.id));
  if (!found) return std::nullopt;
  auto client = parse_ticket(name, found->file_info, found->owner, found->content);
  if (!client) {
    ignore_live(file, found->owner, client.error().message);
    return std::nullopt;
  }
  client->bell = std::move(found->bell);
  return std::move(*client);
}

std::optional<Client> DirectoryTransaction::read_unproved_ticket(const TicketName& name) {
  // The owner of the bell must be that of the file, which is unknown without the bell if this user
  // namespace does not map it.
  if (!name.owner || contains_sorted(listing_.leases, name.id)) return std::nullopt;
  const std::string file = ticket_file_name(name);
  const auto file_info = stat_file(lock_.get(), file);
  if (!file_info || !*file_info || (*file_info)->stx_uid != *name.owner) return std::nullopt;
  const auto content = read_file(lock_.get(), file, **file_info);
  if (!content) return std::nullopt;
  auto client = parse_ticket(name, **file_info, *name.owner, *content);
  if (!client) return std::nullopt;
  return std::move(*client);
}

// Without the bell. The error says why the ticket does not count even if its client lives.
Result<Client> DirectoryTransaction::parse_ticket(const TicketName& name,
                                                  const struct statx& file_info, uid_t owner,
                                                  const FileContent& content) const {
  if (!content.problem.empty()) return fail(ErrorKind::io, content.problem);
  if ((file_info.stx_mode & kEndedFlag) != 0) return fail(ErrorKind::io, "it was ended");
  Record record = TRY(parse_record(content.text));
  if (record.id != name.id)
    return fail(ErrorKind::io, "its id differs from the id in its file name");
  // Another user may have given the record this name, by a hard link.
  const bool is_other_name = record.file_number && *record.file_number != name.file_number;
  const bool is_lease = record.version <= kProtocolVersion && !record.uuids.empty();
  if (is_other_name || is_lease)
    return fail(ErrorKind::io, "it is a hard link to another ticket or lease");
  record.uid = owner;
  Client client{std::move(record), {}};
  if (contains_sorted(listing_.requests, name.id)) apply_changed_request(client);
  return client;
}

// Replaces the request of a ticket by the one that its owner wrote later (see write_ticket()). That
// may only ask for less: otherwise tickets could be granted GPUs by turns, each too briefly to be
// silent, or be prepared long before their owner wants what they ask for.
void DirectoryTransaction::apply_changed_request(Client& client) const {
  Record& ticket = client.record;
  const uid_t owner = ticket.uid;
  const std::string file = request_file_name(ticket.id);
  const auto file_info = stat_file(lock_.get(), file);
  // Two files with an owner that this user namespace does not map may belong to different users.
  if (!file_info || !*file_info || (*file_info)->stx_uid != owner || !is_identified(owner)) return;
  const auto content = read_file(lock_.get(), file, **file_info);
  if (!content || !content->problem.empty()) return;
  auto changed = parse_record(content->text);
  if (!changed || changed->id != ticket.id || !changed->uuids.empty()) return;
  if (!asks_for_no_more(changed->request, ticket.request)) return;
  client.original_request = std::exchange(ticket.request, std::move(changed->request));
  ticket.is_profiling_run = ticket.is_profiling_run && changed->is_profiling_run;
}

Result<std::vector<Client>> DirectoryTransaction::read_leases() {
  std::vector<Client> found;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  for (const std::string& id : listing_.leases) {
    std::optional<Client> lease = TRY(read_lease(id));
    if (!lease) continue;
    // There may be more leases than this process may open files. They count without their bell.
    const auto number = static_cast<rlim_t>(lease->bell.get());
    if (lease->bell && number + kSpareDescriptors >= limit.rlim_cur) lease->bell.reset();
    found.push_back(std::move(*lease));
  }
  return found;
}

Result<std::vector<Drain>> DirectoryTransaction::read_drains() {
  std::vector<Drain> found;
  if (listing_.drains.empty()) return found;
  const uid_t allowed_owner = TRY(harbour_owner());
  for (const std::string& uuid : listing_.drains) {
    const std::string file = drain_file_name(uuid);
    const std::optional<struct statx> file_info = TRY(stat_file(lock_.get(), file));
    if (!file_info) continue;
    const uid_t owner = file_info->stx_uid;
    if (const char* problem = find_file_problem(*file_info)) {
      ignore(file, is_mount_point(*file_info) ? std::nullopt : std::optional(owner), problem);
      continue;
    }
    if (owner != 0 && owner != allowed_owner) {
      ignore(file, owner, "only root or the owner of the harbour may drain a GPU");
      continue;
    }
    const FileContent content = TRY(read_file(lock_.get(), file, *file_info));
    if (!content.problem.empty()) {
      ignore(file, owner, content.problem);
      continue;
    }
    auto drain = parse_drain(content.text);
    if (!drain || drain_file_name(drain->uuid) != file) {
      ignore(file, owner, drain ? "it names another GPU" : drain.error().message);
      continue;
    }
    drain->uid = owner;
    found.push_back(std::move(*drain));
  }
  return found;
}

Result<uid_t> DirectoryTransaction::harbour_owner() const {
  struct stat directory {};
  if (::fstat(lock_.get(), &directory) != 0) return file_error("inspect", lock_.get());
  return directory.st_uid;
}

Result<std::uint64_t> DirectoryTransaction::next_file_number() {
  return berth::next_file_number(listing_.tickets);
}

Result<void> DirectoryTransaction::write_lease(const Record& record) {
  return create_file(lock_.get(), lease_file_name(record.id), format_record(record),
                     &has_name_conflict_);
}

Result<void> DirectoryTransaction::replace_lease(const Record& record) {
  // The time of the file says when the GPUs were last used.
  const auto used = record.last_used.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(used);
  return replace_file(lock_.get(), lease_file_name(record.id), format_record(record),
                      timespec{seconds.count(), std::chrono::nanoseconds(used - seconds).count()});
}

Result<void> DirectoryTransaction::write_ticket(const Record& record, std::uint64_t file_number) {
  has_name_conflict_ = false;
  Record ticket = record;
  ticket.file_number = file_number;
  TicketName name{file_number, record.id, file_number};
  // Writing the file again would change its ctime, and the ticket would lose its place in the
  // queue. So the changed request goes into a file of its own.
  if (is_own_file(ticket_file_name(name))) {
    const std::string file = request_file_name(record.id);
    struct statx existing {};
    // A file of another user cannot be replaced. Other clients then see the old request, which only
    // makes their decisions less precise.
    if (stat_at(lock_.get(), file, existing) && existing.stx_uid != ::geteuid()) return {};
    return replace_file(lock_.get(), file, format_record(ticket));
  }
  const std::string text = format_record(ticket);
  if (!listing_.own_tickets.has_room_for(text.size())) remove_dead_tickets();
  if (!listing_.own_tickets.has_room_for(text.size())) {
    return fail(
        ErrorKind::not_granted,
        fmt::format("you have {} waiting tickets, and the limit is {} tickets or {} MiB; cancel "
                    "some with 'berth cancel'",
                    listing_.own_tickets.count, TicketTotals::kMaxTickets,
                    TicketTotals::kMaxBytes >> 20));
  }
  TRY(create_file(lock_.get(), ticket_file_name(name), text, &has_name_conflict_,
                  to_modification_time(hash_request(ticket))));
  struct statx file_info {};
  if (stat_at(lock_.get(), ticket_file_name(name), file_info)) {
    name.order = ticket_order(name.file_number, file_info);
  }
  auto& tickets = listing_.tickets;
  name.owner = ::geteuid();
  listing_.own_tickets.add(text.size());
  tickets.insert(std::upper_bound(tickets.begin(), tickets.end(), name), name);
  return {};
}

bool DirectoryTransaction::is_own_file(const std::string& file) const {
  struct statx file_info {};
  return stat_at(lock_.get(), file, file_info) && S_ISREG(file_info.stx_mode) &&
         file_info.stx_uid == ::geteuid();
}

TicketName DirectoryTransaction::current_ticket_name(const TicketName& written) const {
  for (const TicketName& name : listing_.tickets) {
    if (name.id == written.id && name.file_number == written.file_number) return name;
  }
  return written;
}

Result<void> DirectoryTransaction::write_drain(const Drain& drain) {
  return replace_file(lock_.get(), drain_file_name(drain.uuid), format_drain(drain));
}

void DirectoryTransaction::remove_ticket(const TicketName& name) {
  std::erase(listing_.tickets, name);
  ::unlinkat(lock_.get(), ticket_file_name(name).c_str(), 0);
  // Even if it is not in the listing: this transaction may have written it.
  ::unlinkat(lock_.get(), request_file_name(name.id).c_str(), 0);
}

Result<void> DirectoryTransaction::end_ticket(const TicketName& name) {
  const std::optional<Client> client = TRY(read_ticket(name));
  if (!client) return {};  // it no longer counts
  return set_ended_flag(lock_.get(), ticket_file_name(name), client->record.uid);
}

Result<void> DirectoryTransaction::end_lease(const Client& lease) {
  return set_ended_flag(lock_.get(), lease_file_name(lease.record.id), lease.record.uid);
}

void DirectoryTransaction::ring(const Client& client) {
  berth::ring(client.bell.get());
}

Result<bool> DirectoryTransaction::remove_drain(const std::string& uuid) {
  if (::unlinkat(lock_.get(), drain_file_name(uuid).c_str(), 0) == 0) return true;
  if (errno == ENOENT) return false;
  return file_error("remove a drain in", lock_.get());
}

void DirectoryTransaction::remove_leftovers() {
  const uid_t own_uid = ::geteuid();
  const bool as_root = is_root();
  const std::vector<IgnoredEntry> found = ignored_entries_;  // the calls below may add more
  std::size_t removed = 0;
  for (const IgnoredEntry& entry : found) {
    if (!entry.leftover || (!as_root && entry.owner && entry.owner != own_uid)) continue;
    if (++removed > kMaxRemovals) return;
    remove_dead_client(entry);
  }
  // One bell more than records is normal: that of this client, whose record is not written yet.
  if (listing_.bells.size() > listing_.leases.size() + listing_.tickets.size() + 1) {
    remove_orphan_bells();
  }
  remove_orphan_requests();
}

// Removes dead tickets of this user, to get below the limit. A decision does not read every ticket,
// so remove_leftovers() does not know all dead ones.
void DirectoryTransaction::remove_dead_tickets() {
  std::size_t removed = 0;
  const std::vector<TicketName> tickets = listing_.tickets;
  for (const TicketName& name : tickets) {
    if (removed == kMaxRemovals) return;
    struct statx file_info {};
    if (name.owner != ::geteuid() || !stat_at(lock_.get(), ticket_file_name(name), file_info))
      continue;
    const auto bell = open_bell(lock_.get(), name.id, ::geteuid());
    if (!bell || bell->state != PeerBell::State::dead) continue;
    ::unlinkat(lock_.get(), bell_file_name(name.id).c_str(), 0);
    remove_ticket(name);
    listing_.own_tickets.remove(file_info.stx_size);
    ++removed;
  }
}

// Removes the files of a dead client; if its ticket became a lease (read_ticket() leaves the owner
// empty then), only those of the ticket. The bell is removed first: if this process is killed
// between the two, the record still belongs to a dead client.
void DirectoryTransaction::remove_dead_client(const IgnoredEntry& entry) {
  const std::string id = entry.file.substr(entry.file.rfind('-') + 1);
  const bool became_lease = !entry.owner;
  if (auto lease = read_dead_lease(entry, id)) removed_leases_.push_back(std::move(*lease));
  if (!became_lease) ::unlinkat(lock_.get(), bell_file_name(id).c_str(), 0);
  ::unlinkat(lock_.get(), entry.file.c_str(), 0);
  ::unlinkat(lock_.get(), request_file_name(id).c_str(), 0);
}

void DirectoryTransaction::remove_orphan_bells() {
  const uid_t own_uid = ::geteuid();
  const bool as_root = is_root();
  const auto ticket_ids = sorted_ticket_ids(listing_.tickets);
  std::size_t checked = 0;
  for (const std::string& id : listing_.bells) {
    if (contains_sorted(listing_.leases, id) || contains_sorted(ticket_ids, id)) continue;
    struct statx file_info {};
    const std::string file = bell_file_name(id);
    if (!stat_at(lock_.get(), file, file_info) || is_mount_point(file_info)) continue;
    // Only bells that this user may remove count for the limit: otherwise bells of other users
    // could use it up.
    if (!as_root && file_info.stx_uid != own_uid) continue;
    if (++checked > kMaxRemovals) return;
    if (clamp_file_time(file_info.stx_mtime.tv_sec) + kOrphanBellSeconds > ::time(nullptr))
      continue;
    const auto bell = open_bell(lock_.get(), id, file_info.stx_uid);
    if (bell && bell->state == PeerBell::State::dead) ::unlinkat(lock_.get(), file.c_str(), 0);
  }
}

// Removes changed requests whose ticket is gone, and temporary files whose client was killed before
// it could rename them. Clients write all of these under the lock, so none is being written now.
void DirectoryTransaction::remove_orphan_requests() {
  std::size_t checked = 0;
  const auto remove = [&](const std::string& file, const std::string& id) {
    struct statx file_info {};
    if (!stat_at(lock_.get(), file, file_info) || !S_ISREG(file_info.stx_mode)) return;
    if ((!is_root() && file_info.stx_uid != ::geteuid()) || ++checked > kMaxRemovals) return;
    if (clamp_file_time(file_info.stx_mtime.tv_sec) + kOrphanBellSeconds > ::time(nullptr)) return;
    if (is_id(id)) {
      const auto bell = open_bell(lock_.get(), id, file_info.stx_uid);
      if (!bell || bell->state != PeerBell::State::dead) return;
    }
    ::unlinkat(lock_.get(), file.c_str(), 0);
  };
  if (!listing_.requests.empty()) {
    const auto ticket_ids = sorted_ticket_ids(listing_.tickets);
    for (const std::string& id : listing_.requests) {
      if (!contains_sorted(ticket_ids, id)) remove(request_file_name(id), id);
    }
  }
  for (const std::string& name : listing_.unknown_names) {
    const std::string target(replaced_file_name(name));
    if (target.starts_with(kDrainPrefix)) remove(name, "");
    if (target.starts_with(kRequestPrefix)) remove(name, target.substr(kRequestPrefix.size()));
  }
}

// The record of a lease that has ended, for the history. nullopt unless its bell is there, a FIFO
// of the same owner: any user can create a file of that name, and only the bell proves that the
// owner made it as a lease.
std::optional<Record> DirectoryTransaction::read_dead_lease(const IgnoredEntry& entry,
                                                            const std::string& id) const {
  if (!entry.owner || entry.file != lease_file_name(id)) return std::nullopt;
  const auto bell = stat_file(lock_.get(), bell_file_name(id));
  if (!bell || !*bell || !S_ISFIFO((*bell)->stx_mode) || (*bell)->stx_uid != *entry.owner) {
    return std::nullopt;
  }
  const auto file_info = stat_file(lock_.get(), entry.file);
  if (!file_info || !*file_info || (*file_info)->stx_uid != *entry.owner) return std::nullopt;
  const auto content = read_file(lock_.get(), entry.file, **file_info);
  if (!content || !content->problem.empty()) return std::nullopt;
  auto record = parse_record(content->text);
  if (!record || record->id != id) return std::nullopt;
  record->uid = *entry.owner;
  return std::move(*record);
}

}  // namespace berth
