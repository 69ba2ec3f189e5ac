// Reading and writing of the harbour's files; see directory_transaction.h and
// docs/harbour-protocol.md.
#include "harbour/directory_transaction.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/users.h"
#include "harbour/bell.h"
#include "harbour/file_error.h"
#include "harbour/location.h"
#include "harbour/safe_directory.h"

namespace berth {
namespace {

constexpr std::string_view kLeasePrefix = "lease-";
constexpr std::string_view kTicketPrefix = "ticket-";
constexpr std::string_view kBellPrefix = "bell-";
constexpr std::string_view kDrainPrefix = "drain-";
constexpr std::string_view kRequestPrefix = "request-";
constexpr std::string_view kTemporaryPrefix =
    "new-";  // and a random id, before the name that the file gets
constexpr std::size_t kNumberDigits = 15;
constexpr mode_t kFileMode = 0644;
// On the record of a ticket or of a shell's lease: it was told to end.
constexpr mode_t kEndedFlag = S_ISVTX;
// Ticket numbers are times, in units of 100 µs since 1970.
constexpr std::uint64_t kUnitNs = 100'000;
constexpr std::uint64_t kUnitsPerSecond = 1'000'000'000 / kUnitNs;
// Housekeeping of one decision.
constexpr std::size_t kMaxRemovals = 256;
// What is ignored is listed up to here; a hostile user can plant any number of files.
constexpr std::size_t kMaxIgnoredEntries = 1000;
// What must remain beside the bells of leases: those of tickets, records, /proc, the lock.
constexpr rlim_t kSpareDescriptors = 64;
// A bell is made before its record is written. Only one that stays alone is a leftover.
constexpr time_t kOrphanBellSeconds = 60;

// Older drivers write the UUIDs of MIG instances with slashes: "MIG-GPU-…/1/0".
std::string drain_file_name(std::string uuid) {
  std::replace(uuid.begin(), uuid.end(), '/', '_');
  return fmt::format("{}{}", kDrainPrefix, uuid);
}

// A UUID is part of a file's name, so it must not lead elsewhere.
bool is_uuid(std::string_view text) {
  constexpr std::string_view letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  return !text.empty() && text.size() <= 128 &&
         text.find_first_not_of(letters) == std::string_view::npos;
}

std::optional<TicketName> parse_ticket_name(std::string_view rest) {
  TicketName name;
  if (rest.size() < kNumberDigits + 2 || rest[kNumberDigits] != '-') return std::nullopt;
  const char* end = rest.data() + kNumberDigits;
  const auto [stop, problem] = std::from_chars(rest.data(), end, name.number);
  if (problem != std::errc{} || stop != end) return std::nullopt;
  name.id = rest.substr(kNumberDigits + 1);
  return is_id(name.id) ? std::optional(name) : std::nullopt;
}

bool add_to_listing(std::string_view name, DirectoryListing& listing) {
  const auto has_id_after = [&name](std::string_view prefix) {
    return name.starts_with(prefix) && is_id(name.substr(prefix.size()));
  };
  if (has_id_after(kLeasePrefix)) {
    listing.leases.emplace_back(name.substr(kLeasePrefix.size()));
  } else if (has_id_after(kBellPrefix)) {
    listing.bells.emplace_back(name.substr(kBellPrefix.size()));
  } else if (has_id_after(kRequestPrefix)) {
    listing.requests.emplace_back(name.substr(kRequestPrefix.size()));
  } else if (name.starts_with(kDrainPrefix) && is_uuid(name.substr(kDrainPrefix.size()))) {
    listing.drains.emplace_back(name.substr(kDrainPrefix.size()));
  } else if (name.starts_with(kTicketPrefix)) {
    const auto ticket = parse_ticket_name(name.substr(kTicketPrefix.size()));
    if (!ticket) return false;
    listing.tickets.push_back(*ticket);
  } else {
    return false;
  }
  return true;
}

std::uint64_t to_units(const statx_timestamp& time) {
  if (time.tv_sec < 0) return 0;
  return static_cast<std::uint64_t>(time.tv_sec) * kUnitsPerSecond + time.tv_nsec / kUnitNs;
}

std::uint64_t units_now() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * kUnitsPerSecond +
         static_cast<std::uint64_t>(now.tv_nsec) / kUnitNs;
}

// May a user make a hard link to another's file? Where the kernel allows that
// (fs.protected_hardlinks=0), other users can give a record a second name, and change its ctime.
bool others_can_link() {
  static const bool allowed = [] {
    int setting = 1;
    std::ifstream("/proc/sys/fs/protected_hardlinks") >> setting;
    return setting == 0;
  }();
  return allowed;
}

// A ticket came when its file got its name, and no earlier: the kernel sets ctime then, and no user
// can set it back. A number that is larger only puts its own ticket further back. Where other users
// can change ctime (by a hard link), the time at which the file was made has to do.
std::uint64_t ticket_order(std::uint64_t number, const struct statx& file_info) {
  const bool use_birth_time = others_can_link() && (file_info.stx_mask & STATX_BTIME) != 0;
  return std::max(number, to_units(use_birth_time ? file_info.stx_btime : file_info.stx_ctime));
}

bool contains_sorted(const std::vector<std::string>& sorted, const std::string& id) {
  return std::binary_search(sorted.begin(), sorted.end(), id);
}

// Berth never makes such a file. Another user may have written it, and given it this name by a hard
// link, which the kernel permits for files that a user can write to.
bool others_can_write(const struct statx& file_info) {
  return S_ISREG(file_info.stx_mode) && (file_info.stx_mode & (S_IWGRP | S_IWOTH)) != 0;
}

std::vector<std::string> sorted_ticket_ids(const std::vector<TicketName>& tickets) {
  std::vector<std::string> ids;
  ids.reserve(tickets.size());
  for (const TicketName& name : tickets) ids.push_back(name.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

// Why a file cannot be a record or drain, before it is opened; null if it can.
const char* find_file_problem(const struct statx& file_info) {
  if (is_mount_point(file_info)) return "a file system is mounted over it";
  if (!S_ISREG(file_info.stx_mode)) return "it is not a regular file";
  if (file_info.stx_size > kMaxRecordSize) return "it is far too large";
  if (others_can_write(file_info)) return "other users can write to it";
  return nullptr;
}

// Some file systems do not tell the type in a listing (DT_UNKNOWN).
bool is_directory(int parent, const dirent64& entry) {
  if (entry.d_type != DT_UNKNOWN) return entry.d_type == DT_DIR;
  struct statx file_info {};
  if (!stat_at(parent, entry.d_name, file_info)) return false;
  if (is_mount_point(file_info)) return std::string_view(entry.d_name) == kArchiveInHarbour;
  return S_ISDIR(file_info.stx_mode);
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

std::string lease_file_name(const std::string& id) {
  return fmt::format("{}{}", kLeasePrefix, id);
}

std::string request_file_name(const std::string& id) {
  return fmt::format("{}{}", kRequestPrefix, id);
}

std::string ticket_file_name(const TicketName& name) {
  return fmt::format("{}{:0{}}-{}", kTicketPrefix, name.number, kNumberDigits, name.id);
}

bool has_ended_flag(int directory, const std::string& id, const std::optional<TicketName>& ticket,
                    uid_t owner) {
  struct statx file_info {};
  const std::string name = ticket ? ticket_file_name(*ticket) : lease_file_name(id);
  return stat_at(directory, name, file_info) && S_ISREG(file_info.stx_mode) &&
         file_info.stx_uid == owner && (file_info.stx_mode & kEndedFlag) != 0;
}

bool DirectoryTransaction::is_ended(const std::string& id,
                                    const std::optional<TicketName>& ticket) {
  return has_ended_flag(directory(), id, ticket, ::geteuid());
}

DirectoryTransaction::DirectoryTransaction(PrivateFd lock) : lock_(std::move(lock)) {}

DirectoryTransaction::~DirectoryTransaction() {
  // Not by closing alone: a child that another thread has just forked has a copy of the descriptor,
  // and would keep the lock.
  unlock();
}

void DirectoryTransaction::unlock() {
  if (lock_ && std::exchange(locked_, false)) ::flock(lock_.get(), LOCK_UN);
}

Result<void> DirectoryTransaction::list() {
  listing_ = {};
  ignored_entries_.clear();
  DirectoryListing directories;
  // By the system call: opendir() allocates and frees 32 KiB, which costs more than the list.
  alignas(dirent64) std::array<char, 16384> buffer;
  ::lseek(lock_.get(), 0, SEEK_SET);
  for (;;) {
    const auto length = ::getdents64(lock_.get(), buffer.data(), buffer.size());
    if (length < 0) return file_error("list", lock_.get());
    if (length == 0) break;
    for (ssize_t at = 0; at < length;) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer.data() + at);
      at += entry->d_reclen;
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      // Never looked at: the owner of a directory can mount a file system there (FUSE) that does
      // not answer.
      const bool directory = is_directory(lock_.get(), *entry);
      if (directory && name == kArchiveInHarbour) continue;
      if (!add_to_listing(name, directory ? directories : listing_)) {
        listing_.unknown_names.emplace_back(name);
        ignore(std::string(name), std::nullopt, "it is not a file of berth's");
      } else if (directory) {
        ignore(std::string(name), std::nullopt, "it is a directory");
      }
    }
  }
  std::sort(listing_.leases.begin(), listing_.leases.end());
  std::sort(listing_.requests.begin(), listing_.requests.end());
  if (!listing_.tickets.empty()) order_tickets();
  return {};
}

// By the kernel's word for when each ticket came (see ticket_order()), and without those that one
// user has beyond the limit.
void DirectoryTransaction::order_tickets() {
  struct statx file_info {};
  struct Ticket {
    TicketName name;
    std::optional<uid_t> owner;
    std::uint64_t size;
  };
  std::vector<Ticket> tickets;
  tickets.reserve(listing_.tickets.size());
  for (TicketName& name : listing_.tickets) {
    // One that cannot be looked at keeps its number: whether it counts, find_live_record() says.
    const bool known = stat_at(lock_.get(), ticket_file_name(name), file_info);
    if (known && is_mount_point(file_info)) {
      ignore(ticket_file_name(name), std::nullopt, find_file_problem(file_info));
      continue;
    }
    name.order = known ? ticket_order(name.number, file_info) : name.number;
    if (known && is_identified(file_info.stx_uid)) name.owner = file_info.stx_uid;
    tickets.push_back({std::move(name), known ? std::optional(file_info.stx_uid) : std::nullopt,
                       std::min<std::uint64_t>(file_info.stx_size, kMaxRecordSize)});
  }
  std::sort(tickets.begin(), tickets.end(),
            [](const Ticket& a, const Ticket& b) { return a.name < b.name; });
  listing_.tickets.clear();
  // Users that cannot be told apart here (a user namespace) have no limit: the tickets of one would
  // make those of another not count.
  std::map<uid_t, TicketTotals> totals;
  for (Ticket& ticket : tickets) {
    TicketTotals unlimited;
    TicketTotals& total = ticket.name.owner ? totals[*ticket.name.owner] : unlimited;
    const bool has_room = total.has_room_for(ticket.size);
    total.add(ticket.size);
    if (has_room) {
      listing_.tickets.push_back(std::move(ticket.name));
    } else {
      ignore(ticket_file_name(ticket.name), ticket.owner, "its user has too many tickets");
    }
  }
  listing_.own_tickets = totals[::geteuid()];
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

Result<std::optional<struct statx>> DirectoryTransaction::stat_file(const std::string& file) const {
  struct statx file_info {};
  // Before it is opened: opening a planted device could do anything.
  if (stat_at(lock_.get(), file, file_info)) return file_info;
  if (errno == ENOENT) return std::nullopt;
  return file_error("look at a file in", lock_.get());
}

Result<DirectoryTransaction::FileText> DirectoryTransaction::read_file(
    const std::string& file, const struct statx& file_info) const {
  if (const char* problem = find_file_problem(file_info)) return FileText{"", problem};
  const UniqueFd fd = open_at(lock_.get(), file, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!fd) {
    if (errno == ENOENT || is_caused_by_owner(errno)) return FileText{"", "it cannot be read"};
    return file_error("read a file in", lock_.get());
  }
  struct stat opened {};
  if (::fstat(fd.get(), &opened) != 0) return file_error("look at a file in", lock_.get());
  if (opened.st_ino != file_info.stx_ino) return FileText{"", "it was replaced while it was read"};
  std::string text(static_cast<std::size_t>(file_info.stx_size), '\0');
  const auto length = ::pread(fd.get(), text.data(), text.size(), 0);
  if (length < 0) return file_error("read a file in", lock_.get());
  text.resize(static_cast<std::size_t>(length));
  return FileText{std::move(text), ""};
}

// The kernel says who the owner is. The bell is opened before the record is read: what a dead
// client left may well be half a record.
Result<std::optional<DirectoryTransaction::LiveRecordFile>> DirectoryTransaction::find_live_record(
    const std::string& file, const std::string& id) {
  const auto file_info = stat_file(file);
  if (!file_info) return tl::make_unexpected(file_info.error());
  if (!*file_info) return std::nullopt;
  // Of a mount point the owner cannot be seen: then it is the bell's.
  std::optional<uid_t> owner;
  if (!is_mount_point(**file_info)) owner = (*file_info)->stx_uid;
  auto bell = open_bell(lock_.get(), id, owner);
  if (!bell) return tl::make_unexpected(bell.error());
  if (!bell->counts_as_alive()) {
    const char* const type = find_file_problem(**file_info);
    const bool dead = bell->state == PeerBell::State::dead && type == nullptr;
    ignore(file, owner,
           dead              ? "its process is gone"
           : type != nullptr ? type
                             : bell->problem,
           dead);
    return std::nullopt;
  }
  auto content = read_file(file, **file_info);
  if (!content) return tl::make_unexpected(content.error());
  return LiveRecordFile{**file_info, bell->owner, std::move(*content), std::move(bell->write_end),
                        std::move(bell->problem)};
}

// A lease file beside a live bell of its owner always counts. What cannot be understood of it may
// hold any GPU.
Result<std::optional<Client>> DirectoryTransaction::read_lease(const std::string& id) {
  const std::string file = lease_file_name(id);
  auto found = find_live_record(file, id);
  if (!found) return tl::make_unexpected(found.error());
  if (!*found) return std::nullopt;
  const struct statx& file_info = (*found)->file_info;
  const uid_t owner = (*found)->owner;
  const FileText& content = (*found)->content;
  const auto ignore_record = [&](const char* problem) {
    ignore_live(file, owner, problem);
    return std::nullopt;
  };
  if (others_can_write(file_info)) return ignore_record("other users can write to it");
  // The bell may be that of another user's ticket, which must not be taken for a lease.
  if (is_mount_point(file_info) && has_ticket_with_id(id)) {
    ignore(file, std::nullopt, find_file_problem(file_info));
    return std::nullopt;
  }
  std::string problem = content.problem;
  auto record = parse_record(content.text);
  if (problem.empty() && !record) problem = record.error().message;
  const bool is_ticket = record && record->uuids.empty() && !record->holds_all_gpus;
  if (problem.empty() && is_ticket) return ignore_record("it is the record of a ticket");
  if (problem.empty() && record->id != id) problem = "it names another id than its file";
  if (!problem.empty()) {
    // Another user may have given any file of this owner's the name of a lease.
    if (others_can_link() && file_info.stx_nlink > 1)
      return ignore_record("it is a second name of a file");
    record = parse_damaged_lease(content.text, std::move(problem));
  } else if ((file_info.stx_mode & kEndedFlag) != 0 && record->holder == HolderKind::shell) {
    return ignore_record("it was ended");
  }
  if (record->problem.empty()) record->problem = (*found)->bell_problem;
  record->id = id;
  record->uid = owner;
  record->last_used = TimePoint(std::chrono::seconds(clamp_file_time(file_info.stx_mtime.tv_sec)) +
                                std::chrono::nanoseconds(file_info.stx_mtime.tv_nsec));
  return Client{std::move(*record), std::move((*found)->bell)};
}

bool DirectoryTransaction::has_ticket_with_id(const std::string& id) const {
  return std::any_of(listing_.tickets.begin(), listing_.tickets.end(),
                     [&](const TicketName& name) { return name.id == id; });
}

Result<std::optional<Client>> DirectoryTransaction::read_ticket(const TicketName& name) {
  const std::string file = ticket_file_name(name);
  // A client that has both holds. (One that was killed between the two is dead.)
  if (contains_sorted(listing_.leases, name.id)) {
    // Any user can plant a file of that name: only a sound lease of the same owner takes the
    // ticket's place.
    auto client = read_lease(name.id);
    if (!client) return client;
    if (*client && (*client)->record.problem.empty() && is_identified((*client)->record.uid)) {
      ignore(file, std::nullopt, "it has become a lease", true);
      return std::nullopt;
    }
  }
  auto found = find_live_record(file, name.id);
  if (!found) return tl::make_unexpected(found.error());
  if (!*found) return std::nullopt;
  const struct statx& file_info = (*found)->file_info;
  const auto ignore_record = [&](const std::string& problem) {
    ignore_live(file, (*found)->owner, problem);
    return std::nullopt;
  };
  if (!(*found)->content.problem.empty()) return ignore_record((*found)->content.problem);
  if ((file_info.stx_mode & kEndedFlag) != 0) return ignore_record("it was ended");
  auto record = parse_record((*found)->content.text);
  if (!record) return ignore_record(record.error().message);
  if (record->id != name.id) return ignore_record("it names another id than its file");
  // Another user may have given the record this name (a hard link).
  const bool is_other_name = record->order && *record->order != name.number;
  const bool is_lease = record->version <= kProtocolVersion && !record->uuids.empty();
  if (is_other_name || is_lease) return ignore_record("it is a second name of a ticket or lease");
  if (contains_sorted(listing_.requests, name.id)) apply_changed_request(*record, (*found)->owner);
  record->uid = (*found)->owner;
  return Client{std::move(*record), std::move((*found)->bell)};
}

// Takes over the request that the ticket's owner has changed since it came.
void DirectoryTransaction::apply_changed_request(Record& ticket, uid_t owner) const {
  const std::string file = request_file_name(ticket.id);
  const auto file_info = stat_file(file);
  // Two files of users that cannot be told apart here may be two users'.
  if (!file_info || !*file_info || (*file_info)->stx_uid != owner || !is_identified(owner)) return;
  const auto content = read_file(file, **file_info);
  if (!content || !content->problem.empty()) return;
  auto changed = parse_record(content->text);
  if (!changed || changed->id != ticket.id || !changed->uuids.empty()) return;
  ticket.request = std::move(changed->request);
  ticket.is_profiling_run = changed->is_profiling_run;
}

Result<std::vector<Client>> DirectoryTransaction::read_leases() {
  std::vector<Client> found;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  for (const std::string& id : listing_.leases) {
    auto one = read_lease(id);
    if (!one) return tl::make_unexpected(one.error());
    if (!*one) continue;
    // One user can have more leases than another may open files. They count all the same.
    if (!(*one)->bell) {
      found.push_back(std::move(**one));
      continue;
    }
    const auto number = static_cast<rlim_t>((*one)->bell.get());
    if (number + kSpareDescriptors >= limit.rlim_cur) (*one)->bell.reset();
    found.push_back(std::move(**one));
  }
  return found;
}

Result<std::vector<Drain>> DirectoryTransaction::read_drains() {
  std::vector<Drain> found;
  if (listing_.drains.empty()) return found;
  const auto allowed_owner = harbour_owner();
  if (!allowed_owner) return tl::make_unexpected(allowed_owner.error());
  for (const std::string& uuid : listing_.drains) {
    const std::string file = drain_file_name(uuid);
    const auto file_info = stat_file(file);
    if (!file_info) return tl::make_unexpected(file_info.error());
    if (!*file_info) continue;
    const uid_t owner = (*file_info)->stx_uid;
    if (const char* problem = find_file_problem(**file_info)) {
      ignore(file, is_mount_point(**file_info) ? std::nullopt : std::optional(owner), problem);
      continue;
    }
    if (owner != 0 && owner != *allowed_owner) {
      ignore(file, owner, "only root or the owner of the harbour may drain a GPU");
      continue;
    }
    const auto content = read_file(file, **file_info);
    if (!content) return tl::make_unexpected(content.error());
    if (!content->problem.empty()) {
      ignore(file, owner, content->problem);
      continue;
    }
    auto drain = parse_drain(content->text);
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
  if (::fstat(lock_.get(), &directory) != 0) return file_error("look at", lock_.get());
  return directory.st_uid;
}

Result<std::uint64_t> DirectoryTransaction::next_order() {
  const std::uint64_t now = units_now();
  if (listing_.tickets.empty()) return now;
  // Two tickets of one moment keep their order. A number from the future means nothing to others: a
  // millisecond is all that it can change.
  const std::uint64_t last = listing_.tickets.back().order;
  return last >= now && last - now < kUnitsPerSecond / 1000 ? last + 1 : now;
}

Result<void> DirectoryTransaction::write_file(const std::string& file, const std::string& text) {
  const UniqueFd fd(::openat(lock_.get(), file.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kFileMode));
  has_name_conflict_ = !fd && errno == EEXIST;
  if (!fd) return file_error("write a record in", lock_.get());
  struct stat file_info {};
  // By chmod: with a umask of 077 other users could not read it.
  const bool readable =
      ::fstat(fd.get(), &file_info) == 0 &&
      ((file_info.st_mode & 07777) == kFileMode || ::fchmod(fd.get(), kFileMode) == 0);
  if (readable && write_all(fd.get(), text)) return {};
  auto error = file_error("write a record in", lock_.get());
  ::unlinkat(lock_.get(), file.c_str(), 0);
  return error;
}

Result<void> DirectoryTransaction::write_lease(const Record& record) {
  return write_file(lease_file_name(record.id), format_record(record));
}

Result<void> DirectoryTransaction::write_ticket(const Record& record, std::uint64_t order) {
  Record ticket = record;
  TicketName name{order, record.id, order};
  // A file that is written again would lose its place: the change goes into a file beside it.
  if (is_own_file(ticket_file_name(name))) {
    ticket.order = name.number;
    const std::string file = request_file_name(record.id);
    struct statx existing {};
    // Another user's file cannot be replaced. Other clients then know the request of before, which
    // costs nothing but precision.
    if (stat_at(lock_.get(), file, existing) && existing.stx_uid != ::geteuid()) return {};
    return replace_file(file, format_record(ticket));
  }
  ticket.order = name.number;
  const std::string text = format_record(ticket);
  if (!listing_.own_tickets.has_room_for(text.size())) remove_dead_tickets();
  if (!listing_.own_tickets.has_room_for(text.size())) {
    has_name_conflict_ = false;
    return fail(ErrorKind::not_granted,
                fmt::format("you have {} waiting tickets, and {} or {} MiB of them is the limit; "
                            "'berth cancel' cancels some",
                            listing_.own_tickets.count, TicketTotals::kMaxTickets,
                            TicketTotals::kMaxBytes >> 20));
  }
  if (auto written = write_file(ticket_file_name(name), text); !written) return written;
  struct statx file_info {};
  if (stat_at(lock_.get(), ticket_file_name(name), file_info)) {
    name.order = ticket_order(name.number, file_info);
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
    if (name.id == written.id && name.number == written.number) return name;
  }
  return written;
}

// Under another name first, so that on a full disk the file before it stays. The name is random:
// another user could have taken one that is known.
Result<void> DirectoryTransaction::replace_file(const std::string& file, const std::string& text) {
  const std::string temporary = fmt::format("{}{}-{}", kTemporaryPrefix, make_id(), file);
  if (auto written = write_file(temporary, text); !written) return written;
  if (::renameat(lock_.get(), temporary.c_str(), lock_.get(), file.c_str()) == 0) return {};
  auto error = file_error("write a file in", lock_.get());
  ::unlinkat(lock_.get(), temporary.c_str(), 0);
  return error;
}

Result<void> DirectoryTransaction::write_drain(const Drain& drain) {
  return replace_file(drain_file_name(drain.uuid), berth::format_drain(drain));
}

void DirectoryTransaction::remove_ticket(const TicketName& name) {
  std::erase(listing_.tickets, name);
  ::unlinkat(lock_.get(), ticket_file_name(name).c_str(), 0);
  // Even if the listing has none: this transaction may have written it.
  ::unlinkat(lock_.get(), request_file_name(name.id).c_str(), 0);
}

// Through a descriptor: what the name means may change between the look and the chmod.
Result<void> DirectoryTransaction::set_ended_flag(const std::string& file, uid_t owner) {
  const UniqueFd fd(::openat(lock_.get(), file.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return file_error("end a ticket or lease in", lock_.get());
  struct stat file_info {};
  if (::fstat(fd.get(), &file_info) != 0) return file_error("look at a file in", lock_.get());
  if (!S_ISREG(file_info.st_mode) || file_info.st_uid != owner) {
    return fail(ErrorKind::io, "the record was replaced while it was ended; try again");
  }
  const std::string path = fmt::format("/proc/self/fd/{}", fd.get());
  if (::chmod(path.c_str(), (file_info.st_mode & 07777) | kEndedFlag) == 0) return {};
  return file_error("end a ticket or lease in", lock_.get());
}

Result<void> DirectoryTransaction::end_ticket(const TicketName& name) {
  const auto client = read_ticket(name);
  if (!client) return tl::make_unexpected(client.error());
  if (!*client) return {};  // it has ended by itself
  return set_ended_flag(ticket_file_name(name), (*client)->record.uid);
}

Result<void> DirectoryTransaction::end_lease(const Client& lease) {
  return set_ended_flag(lease_file_name(lease.record.id), lease.record.uid);
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
  const std::vector<IgnoredEntry> found = ignored_entries_;  // more may be found on the way
  std::size_t removed = 0;
  for (const IgnoredEntry& entry : found) {
    if (!entry.leftover || (!as_root && entry.owner && entry.owner != own_uid)) continue;
    if (++removed > kMaxRemovals) return;
    remove_dead_client(entry);
  }
  // One bell more than records is our own, whose record is being written.
  if (listing_.bells.size() > listing_.leases.size() + listing_.tickets.size() + 1) {
    remove_orphan_bells();
  }
  remove_orphan_requests();
}

// Makes room below the limit: a decision does not read every ticket, so it does not know all that
// are dead.
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

// The files of a dead client. The bell goes first, so that a kill between the two leaves what still
// counts as dead.
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
    // Only bells that may be removed count, so that those of other users do not protect them.
    if (!as_root && file_info.stx_uid != own_uid) continue;
    if (++checked > kMaxRemovals) return;
    if (clamp_file_time(file_info.stx_mtime.tv_sec) + kOrphanBellSeconds > ::time(nullptr))
      continue;
    const auto bell = open_bell(lock_.get(), id, file_info.stx_uid);
    if (bell && bell->state == PeerBell::State::dead) ::unlinkat(lock_.get(), file.c_str(), 0);
  }
}

// Changed requests whose ticket is gone, and files whose client was killed before it could rename
// them. All of them are written under the lock, so none is being written now.
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
    const std::size_t target_at = kTemporaryPrefix.size() + make_id().size() + 1;
    if (!name.starts_with(kTemporaryPrefix) || name.size() <= target_at) continue;
    const std::string target = name.substr(target_at);
    if (target.starts_with(kDrainPrefix)) remove(name, "");
    if (target.starts_with(kRequestPrefix)) remove(name, target.substr(kRequestPrefix.size()));
  }
}

// The record of a lease that has ended, for the history. Only with the bell that proves that its
// owner made it as a lease: any user can plant a record.
std::optional<Record> DirectoryTransaction::read_dead_lease(const IgnoredEntry& entry,
                                                            const std::string& id) const {
  if (!entry.owner || entry.file != lease_file_name(id)) return std::nullopt;
  const auto bell = stat_file(bell_file_name(id));
  if (!bell || !*bell || !S_ISFIFO((*bell)->stx_mode) || (*bell)->stx_uid != *entry.owner) {
    return std::nullopt;
  }
  const auto file_info = stat_file(entry.file);
  if (!file_info || !*file_info || (*file_info)->stx_uid != *entry.owner) return std::nullopt;
  const auto content = read_file(entry.file, **file_info);
  if (!content || !content->problem.empty()) return std::nullopt;
  auto record = parse_record(content->text);
  if (!record || record->id != id) return std::nullopt;
  record->uid = *entry.owner;
  return std::move(*record);
}

}  // namespace berth
