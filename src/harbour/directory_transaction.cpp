// Reads and writes the files of the harbour's directory; see directory_transaction.h and
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
// A file is written as new-RANDOM-NAME, and then renamed to NAME.
constexpr std::string_view kTemporaryPrefix = "new-";
constexpr std::size_t kNumberDigits = 15;
constexpr mode_t kFileMode = 0644;
// On the record of a ticket or of a shell's lease: its owner or root has ended it.
constexpr mode_t kEndedFlag = S_ISVTX;
// The file numbers of tickets are times, in units of 100 µs since 1970.
constexpr std::uint64_t kUnitNs = 100'000;
constexpr std::uint64_t kUnitsPerSecond = 1'000'000'000 / kUnitNs;
// How many files one call of remove_leftovers() removes.
constexpr std::size_t kMaxRemovals = 256;
// Limits ignored_entries(), since a hostile user can create any number of files.
constexpr std::size_t kMaxIgnoredEntries = 1000;
// Descriptors that the bells of leases must leave for tickets, records, /proc and the lock.
constexpr rlim_t kSpareDescriptors = 64;

// Older drivers write the UUIDs of MIG instances with slashes: "MIG-GPU-…/1/0".
std::string drain_file_name(std::string uuid) {
  std::replace(uuid.begin(), uuid.end(), '/', '_');
  return fmt::format("{}{}", kDrainPrefix, uuid);
}

// A UUID is part of a file's name, so it must not contain '/'.
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
  const auto [stop, problem] = std::from_chars(rest.data(), end, name.file_number);
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

// Can a user make a hard link to another user's file? Where the kernel allows it
// (fs.protected_hardlinks=0), other users can give a record a second name, which changes its ctime.
bool others_can_link() {
  static const bool allowed = [] {
    int setting = 1;
    std::ifstream("/proc/sys/fs/protected_hardlinks") >> setting;
    return setting == 0;
  }();
  return allowed;
}

// The order of a ticket in the queue: the later of its file_number and the time at which its file
// got its name. The kernel sets the ctime then, and no user can set it back, so a forged small
// number gains nothing. A larger number only moves its own ticket back. Where other users can
// change the ctime (by a hard link), the birth time of the file takes its place.
std::uint64_t ticket_order(std::uint64_t file_number, const struct statx& file_info) {
  const bool use_birth_time = others_can_link() && (file_info.stx_mask & STATX_BTIME) != 0;
  return std::max(file_number,
                  to_units(use_birth_time ? file_info.stx_btime : file_info.stx_ctime));
}

bool contains_sorted(const std::vector<std::string>& sorted, const std::string& id) {
  return std::binary_search(sorted.begin(), sorted.end(), id);
}

// Berth never makes such a file. Another user may have written its content, and may have given it
// this name: the kernel permits hard links to files that a user can write to.
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

// Why a file cannot be a record or drain, known before it is opened; null if it can be one.
const char* find_file_problem(const struct statx& file_info) {
  if (is_mount_point(file_info)) return "a file system is mounted over it";
  if (!S_ISREG(file_info.stx_mode)) return "it is not a regular file";
  if (file_info.stx_size > kMaxRecordSize) return "it is too large";
  if (others_can_write(file_info)) return "other users can write to it";
  return nullptr;
}

// Some file systems do not report types in a listing (DT_UNKNOWN).
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
  return fmt::format("{}{:0{}}-{}", kTicketPrefix, name.file_number, kNumberDigits, name.id);
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
  // Closing the descriptor does not unlock: a child that another thread has just forked has a copy
  // of it.
  unlock();
}

void DirectoryTransaction::unlock() {
  if (lock_ && std::exchange(locked_, false)) ::flock(lock_.get(), LOCK_UN);
}

Result<void> DirectoryTransaction::list() {
  listing_ = {};
  ignored_entries_.clear();
  DirectoryListing directories;
  // opendir() would allocate and free 32 KiB, which costs more than the listing itself.
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
      // Directories are never opened: the owner of a directory can mount a file system there (FUSE)
      // that does not answer.
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

// Sorts the tickets by ticket_order(), and drops those of a user that exceed the limit.
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
    // A ticket whose file cannot be examined has its file_number as order. find_live_record()
    // decides later whether it counts.
    const bool known = stat_at(lock_.get(), ticket_file_name(name), file_info);
    if (known && is_mount_point(file_info)) {
      ignore(ticket_file_name(name), std::nullopt, find_file_problem(file_info));
      continue;
    }
    name.order = known ? ticket_order(name.file_number, file_info) : name.file_number;
    if (known && is_identified(file_info.stx_uid)) name.owner = file_info.stx_uid;
    tickets.push_back({std::move(name), known ? std::optional(file_info.stx_uid) : std::nullopt,
                       std::min<std::uint64_t>(file_info.stx_size, kMaxRecordSize)});
  }
  std::sort(tickets.begin(), tickets.end(),
            [](const Ticket& a, const Ticket& b) { return a.name < b.name; });
  listing_.tickets.clear();
  // Owners that this user namespace does not map have no limit: they all look like one user, and
  // the tickets of one of them would make those of another not count.
  std::map<uid_t, TicketTotals> totals;
  for (Ticket& ticket : tickets) {
    TicketTotals unlimited;
    TicketTotals& total = ticket.name.owner ? totals[*ticket.name.owner] : unlimited;
    const bool has_room = total.has_room_for(ticket.size);
    total.add(ticket.size);
    if (has_room) {
      listing_.tickets.push_back(std::move(ticket.name));
    } else {
      ignore(ticket_file_name(ticket.name), ticket.owner, "its owner has too many tickets");
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
  // Callers check the type before they open the file: a hostile user may have put a device there,
  // and opening a device can have any effect.
  if (stat_at(lock_.get(), file, file_info)) return file_info;
  if (errno == ENOENT) return std::nullopt;
  return file_error("inspect a file in", lock_.get());
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
  if (::fstat(fd.get(), &opened) != 0) return file_error("inspect a file in", lock_.get());
  if (opened.st_ino != file_info.stx_ino) return FileText{"", "it was replaced during the check"};
  std::string text(static_cast<std::size_t>(file_info.stx_size), '\0');
  const auto length = ::pread(fd.get(), text.data(), text.size(), 0);
  if (length < 0) return file_error("read a file in", lock_.get());
  text.resize(static_cast<std::size_t>(length));
  return FileText{std::move(text), ""};
}

// The owner is the one that the kernel reports. The bell is opened before the record is read, since
// a killed client may have left half a record.
Result<std::optional<DirectoryTransaction::LiveRecordFile>> DirectoryTransaction::find_live_record(
    const std::string& file, const std::string& id) {
  const std::optional<struct statx> file_info = TRY(stat_file(file));
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
  FileText content = TRY(read_file(file, *file_info));
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
  const FileText& content = found->content;
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
  const struct statx& file_info = found->file_info;
  const auto ignore_record = [&](const std::string& problem) {
    ignore_live(file, found->owner, problem);
    return std::nullopt;
  };
  if (!found->content.problem.empty()) return ignore_record(found->content.problem);
  if ((file_info.stx_mode & kEndedFlag) != 0) return ignore_record("it was ended");
  auto record = parse_record(found->content.text);
  if (!record) return ignore_record(record.error().message);
  if (record->id != name.id) return ignore_record("its id differs from the id in its file name");
  // Another user may have given the record this name, by a hard link.
  const bool is_other_name = record->file_number && *record->file_number != name.file_number;
  const bool is_lease = record->version <= kProtocolVersion && !record->uuids.empty();
  if (is_other_name || is_lease)
    return ignore_record("it is a hard link to another ticket or lease");
  if (contains_sorted(listing_.requests, name.id)) apply_changed_request(*record, found->owner);
  record->uid = found->owner;
  return Client{std::move(*record), std::move(found->bell)};
}

// Replaces the request of a ticket by the one that its owner wrote later (see write_ticket()).
void DirectoryTransaction::apply_changed_request(Record& ticket, uid_t owner) const {
  const std::string file = request_file_name(ticket.id);
  const auto file_info = stat_file(file);
  // Two files with an owner that this user namespace does not map may belong to different users.
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
    const std::optional<struct statx> file_info = TRY(stat_file(file));
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
    const FileText content = TRY(read_file(file, *file_info));
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

Result<std::uint64_t> DirectoryTransaction::next_order() {
  const std::uint64_t now = units_now();
  if (listing_.tickets.empty()) return now;
  // Two tickets of the same moment keep their order. A ticket with a number from the future changes
  // the numbers of others by a millisecond at most.
  const std::uint64_t last = listing_.tickets.back().order;
  return last >= now && last - now < kUnitsPerSecond / 1000 ? last + 1 : now;
}

Result<void> DirectoryTransaction::write_file(const std::string& file, const std::string& text) {
  const UniqueFd fd(::openat(lock_.get(), file.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kFileMode));
  has_name_conflict_ = !fd && errno == EEXIST;
  if (!fd) return file_error("write a record in", lock_.get());
  struct stat file_info {};
  // With a umask of 077 other users could not read the file.
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

Result<void> DirectoryTransaction::write_ticket(const Record& record, std::uint64_t file_number) {
  Record ticket = record;
  TicketName name{file_number, record.id, file_number};
  // Writing the file again would change its ctime, and the ticket would lose its place in the
  // queue. So the changed request goes into a file of its own.
  if (is_own_file(ticket_file_name(name))) {
    ticket.file_number = name.file_number;
    const std::string file = request_file_name(record.id);
    struct statx existing {};
    // A file of another user cannot be replaced. Other clients then see the old request, which only
    // makes their decisions less precise.
    if (stat_at(lock_.get(), file, existing) && existing.stx_uid != ::geteuid()) return {};
    return replace_file(file, format_record(ticket));
  }
  ticket.file_number = name.file_number;
  const std::string text = format_record(ticket);
  if (!listing_.own_tickets.has_room_for(text.size())) remove_dead_tickets();
  if (!listing_.own_tickets.has_room_for(text.size())) {
    has_name_conflict_ = false;
    return fail(
        ErrorKind::not_granted,
        fmt::format("you have {} waiting tickets, and the limit is {} tickets or {} MiB; cancel "
                    "some with 'berth cancel'",
                    listing_.own_tickets.count, TicketTotals::kMaxTickets,
                    TicketTotals::kMaxBytes >> 20));
  }
  TRY(write_file(ticket_file_name(name), text));
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

// Writes a temporary file first, so that on a full disk the old file stays. Its name is random:
// another user could have created a file of a predictable name.
Result<void> DirectoryTransaction::replace_file(const std::string& file, const std::string& text) {
  const std::string temporary = fmt::format("{}{}-{}", kTemporaryPrefix, make_id(), file);
  TRY(write_file(temporary, text));
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
  // Even if it is not in the listing: this transaction may have written it.
  ::unlinkat(lock_.get(), request_file_name(name.id).c_str(), 0);
}

// Uses a descriptor, since the name may mean another file between the check and the chmod.
Result<void> DirectoryTransaction::set_ended_flag(const std::string& file, uid_t owner) {
  const UniqueFd fd(::openat(lock_.get(), file.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return file_error("end a ticket or lease in", lock_.get());
  struct stat file_info {};
  if (::fstat(fd.get(), &file_info) != 0) return file_error("inspect a file in", lock_.get());
  if (!S_ISREG(file_info.st_mode) || file_info.st_uid != owner) {
    return fail(ErrorKind::io,
                "another process replaced the record of the ticket or lease; try again");
  }
  const std::string path = fmt::format("/proc/self/fd/{}", fd.get());
  if (::chmod(path.c_str(), (file_info.st_mode & 07777) | kEndedFlag) == 0) return {};
  return file_error("end a ticket or lease in", lock_.get());
}

Result<void> DirectoryTransaction::end_ticket(const TicketName& name) {
  const std::optional<Client> client = TRY(read_ticket(name));
  if (!client) return {};  // it no longer counts
  return set_ended_flag(ticket_file_name(name), client->record.uid);
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
    const std::size_t target_at = kTemporaryPrefix.size() + make_id().size() + 1;
    if (!name.starts_with(kTemporaryPrefix) || name.size() <= target_at) continue;
    const std::string target = name.substr(target_at);
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
