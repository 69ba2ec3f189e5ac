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

constexpr std::string_view kLease = "lease-";
constexpr std::string_view kTicket = "ticket-";
constexpr std::string_view kBell = "bell-";
constexpr std::string_view kDrain = "drain-";
constexpr std::string_view kRequest = "request-";
constexpr std::string_view kNew = "new-";  // and a random id, before the name that the file gets
constexpr std::size_t kNumberDigits = 15;
constexpr mode_t kFileMode = 0644;
// On the record of a ticket or of a shell's lease: it was told to end.
constexpr mode_t kEnded = S_ISVTX;
// Ticket numbers are times, in units of 100 µs since 1970.
constexpr std::uint64_t kUnitNs = 100'000;
constexpr std::uint64_t kUnitsPerSecond = 1'000'000'000 / kUnitNs;
// Housekeeping of one decision.
constexpr std::size_t kMostRemoved = 256;
// What is ignored is listed up to here; a hostile user can plant any number of files.
constexpr std::size_t kMostIgnored = 1000;
// What must remain beside the bells of leases: those of tickets, records, /proc, the lock.
constexpr rlim_t kSpareDescriptors = 64;
// A bell is made before its record is written. Only one that stays alone is a leftover.
constexpr time_t kLoneBellSeconds = 60;

// Older drivers write the UUIDs of MIG instances with slashes: "MIG-GPU-…/1/0".
std::string drain_name(std::string uuid) {
  std::replace(uuid.begin(), uuid.end(), '/', '_');
  return fmt::format("{}{}", kDrain, uuid);
}

// A UUID is part of a file's name, so it must not lead elsewhere.
bool is_uuid(std::string_view text) {
  constexpr std::string_view letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  return !text.empty() && text.size() <= 128 &&
         text.find_first_not_of(letters) == std::string_view::npos;
}

std::optional<TicketName> parse_ticket(std::string_view rest) {
  TicketName name;
  if (rest.size() < kNumberDigits + 2 || rest[kNumberDigits] != '-') return std::nullopt;
  const char* end = rest.data() + kNumberDigits;
  const auto [stop, problem] = std::from_chars(rest.data(), end, name.number);
  if (problem != std::errc{} || stop != end) return std::nullopt;
  name.id = rest.substr(kNumberDigits + 1);
  return is_id(name.id) ? std::optional(name) : std::nullopt;
}

bool sort_in(std::string_view name, Listing& listing) {
  const auto id_behind = [&name](std::string_view prefix) {
    return name.starts_with(prefix) && is_id(name.substr(prefix.size()));
  };
  if (id_behind(kLease)) {
    listing.leases.emplace_back(name.substr(kLease.size()));
  } else if (id_behind(kBell)) {
    listing.bells.emplace_back(name.substr(kBell.size()));
  } else if (id_behind(kRequest)) {
    listing.requests.emplace_back(name.substr(kRequest.size()));
  } else if (name.starts_with(kDrain) && is_uuid(name.substr(kDrain.size()))) {
    listing.drains.emplace_back(name.substr(kDrain.size()));
  } else if (name.starts_with(kTicket)) {
    const auto ticket = parse_ticket(name.substr(kTicket.size()));
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
std::uint64_t order_of(std::uint64_t number, const struct statx& about) {
  const bool by_birth = others_can_link() && (about.stx_mask & STATX_BTIME) != 0;
  return std::max(number, to_units(by_birth ? about.stx_btime : about.stx_ctime));
}

bool contains(const std::vector<std::string>& sorted, const std::string& id) {
  return std::binary_search(sorted.begin(), sorted.end(), id);
}

// Berth never makes such a file. Another user may have written it, and given it this name by a hard
// link, which the kernel permits for files that a user can write to.
bool others_can_write(const struct statx& about) {
  return S_ISREG(about.stx_mode) && (about.stx_mode & (S_IWGRP | S_IWOTH)) != 0;
}

std::vector<std::string> sorted_ids(const std::vector<TicketName>& tickets) {
  std::vector<std::string> ids;
  ids.reserve(tickets.size());
  for (const TicketName& name : tickets) ids.push_back(name.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

// Why a file cannot be a record or drain, before it is opened; null if it can.
const char* type_problem(const struct statx& about) {
  if (is_mount_point(about)) return "a file system is mounted over it";
  if (!S_ISREG(about.stx_mode)) return "it is not a regular file";
  if (about.stx_size > kLargestRecord) return "it is far too large";
  if (others_can_write(about)) return "other users can write to it";
  return nullptr;
}

// Some file systems do not tell the type in a listing (DT_UNKNOWN).
bool is_directory(int parent, const dirent64& entry) {
  if (entry.d_type != DT_UNKNOWN) return entry.d_type == DT_DIR;
  struct statx about {};
  if (!look_at(parent, entry.d_name, about)) return false;
  if (is_mount_point(about)) return std::string_view(entry.d_name) == kArchiveInHarbour;
  return S_ISDIR(about.stx_mode);
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

std::string lease_name(const std::string& id) {
  return fmt::format("{}{}", kLease, id);
}

std::string request_name(const std::string& id) {
  return fmt::format("{}{}", kRequest, id);
}

std::string ticket_name(const TicketName& name) {
  return fmt::format("{}{:0{}}-{}", kTicket, name.number, kNumberDigits, name.id);
}

bool was_ended(int directory, const std::string& id, const std::optional<TicketName>& ticket,
               uid_t owner) {
  struct statx about {};
  const std::string name = ticket ? ticket_name(*ticket) : lease_name(id);
  return look_at(directory, name, about) && S_ISREG(about.stx_mode) && about.stx_uid == owner &&
         (about.stx_mode & kEnded) != 0;
}

bool DirectoryTransaction::is_ended(const std::string& id,
                                    const std::optional<TicketName>& ticket) {
  return was_ended(directory(), id, ticket, ::geteuid());
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
  oddities_.clear();
  Listing unseen;
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
      if (!sort_in(name, directory ? unseen : listing_)) {
        listing_.others.emplace_back(name);
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

// By the kernel's word for when each ticket came (see order_of()), and without those that one user
// has beyond the limit.
void DirectoryTransaction::order_tickets() {
  struct statx about {};
  struct Ticket {
    TicketName name;
    std::optional<uid_t> owner;
    std::uint64_t size;
  };
  std::vector<Ticket> tickets;
  tickets.reserve(listing_.tickets.size());
  for (TicketName& name : listing_.tickets) {
    // One that cannot be looked at keeps its number: whether it counts, find() says.
    const bool known = look_at(lock_.get(), ticket_name(name), about);
    if (known && is_mount_point(about)) {
      ignore(ticket_name(name), std::nullopt, type_problem(about));
      continue;
    }
    name.order = known ? order_of(name.number, about) : name.number;
    if (known && is_identified(about.stx_uid)) name.owner = about.stx_uid;
    tickets.push_back({std::move(name), known ? std::optional(about.stx_uid) : std::nullopt,
                       std::min<std::uint64_t>(about.stx_size, kLargestRecord)});
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
      ignore(ticket_name(ticket.name), ticket.owner, "its user has too many tickets");
    }
  }
  listing_.own_tickets = totals[::geteuid()];
}

void DirectoryTransaction::ignore_live(const std::string& file, uid_t owner, std::string problem) {
  if (oddities_.size() >= kMostIgnored) return;
  oddities_.push_back({file, owner, std::move(problem), false, true});
}

void DirectoryTransaction::ignore(const std::string& file, std::optional<uid_t> owner,
                                  std::string problem, bool leftover) {
  const bool removable = leftover && (!owner || *owner == ::geteuid());
  if (oddities_.size() >= kMostIgnored && !removable) return;
  oddities_.push_back({file, owner, std::move(problem), leftover});
}

Result<std::optional<struct statx>> DirectoryTransaction::look(const std::string& file) const {
  struct statx about {};
  // Before it is opened: opening a planted device could do anything.
  if (look_at(lock_.get(), file, about)) return about;
  if (errno == ENOENT) return std::nullopt;
  return file_error("look at a file in", lock_.get());
}

Result<DirectoryTransaction::Text> DirectoryTransaction::read(const std::string& file,
                                                              const struct statx& about) const {
  if (const char* problem = type_problem(about)) return Text{"", problem};
  const UniqueFd fd = open_at(lock_.get(), file, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!fd) {
    if (errno == ENOENT || is_caused_by_owner(errno)) return Text{"", "it cannot be read"};
    return file_error("read a file in", lock_.get());
  }
  struct stat opened {};
  if (::fstat(fd.get(), &opened) != 0) return file_error("look at a file in", lock_.get());
  if (opened.st_ino != about.stx_ino) return Text{"", "it was replaced while it was read"};
  std::string text(static_cast<std::size_t>(about.stx_size), '\0');
  const auto length = ::pread(fd.get(), text.data(), text.size(), 0);
  if (length < 0) return file_error("read a file in", lock_.get());
  text.resize(static_cast<std::size_t>(length));
  return Text{std::move(text), ""};
}

// The kernel says who the owner is. The bell is opened before the record is read: what a dead
// client left may well be half a record.
Result<std::optional<DirectoryTransaction::Found>> DirectoryTransaction::find(
    const std::string& file, const std::string& id) {
  const auto about = look(file);
  if (!about) return tl::make_unexpected(about.error());
  if (!*about) return std::nullopt;
  // Of a mount point the owner cannot be seen: then it is the bell's.
  std::optional<uid_t> owner;
  if (!is_mount_point(**about)) owner = (*about)->stx_uid;
  auto bell = open_bell(lock_.get(), id, owner);
  if (!bell) return tl::make_unexpected(bell.error());
  if (!bell->counts()) {
    const char* const type = type_problem(**about);
    const bool dead = bell->state == PeerBell::State::dead && type == nullptr;
    ignore(file, owner,
           dead              ? "its process is gone"
           : type != nullptr ? type
                             : bell->problem,
           dead);
    return std::nullopt;
  }
  auto content = read(file, **about);
  if (!content) return tl::make_unexpected(content.error());
  return Found{**about, bell->owner, std::move(*content), std::move(bell->end),
               std::move(bell->problem)};
}

// A lease file beside a live bell of its owner always counts. What cannot be understood of it may
// hold any GPU.
Result<std::optional<Client>> DirectoryTransaction::lease(const std::string& id) {
  const std::string file = lease_name(id);
  auto found = find(file, id);
  if (!found) return tl::make_unexpected(found.error());
  if (!*found) return std::nullopt;
  const struct statx& about = (*found)->about;
  const uid_t owner = (*found)->owner;
  const Text& content = (*found)->content;
  const auto ignored = [&](const char* problem) {
    ignore_live(file, owner, problem);
    return std::nullopt;
  };
  if (others_can_write(about)) return ignored("other users can write to it");
  // The bell may be that of another user's ticket, which must not be taken for a lease.
  if (is_mount_point(about) && is_ticket(id)) {
    ignore(file, std::nullopt, type_problem(about));
    return std::nullopt;
  }
  std::string problem = content.problem;
  auto record = read_record(content.text);
  if (problem.empty() && !record) problem = record.error().message;
  const bool waiting = record && record->uuids.empty() && !record->everything;
  if (problem.empty() && waiting) return ignored("it is the record of a ticket");
  if (problem.empty() && record->id != id) problem = "it names another id than its file";
  if (!problem.empty()) {
    // Another user may have given any file of this owner's the name of a lease.
    if (others_can_link() && about.stx_nlink > 1) return ignored("it is a second name of a file");
    record = read_lease_in_part(content.text, std::move(problem));
  } else if ((about.stx_mode & kEnded) != 0 && record->holder == HolderKind::shell) {
    return ignored("it was ended");
  }
  if (record->problem.empty()) record->problem = (*found)->bell_problem;
  record->id = id;
  record->uid = owner;
  record->used = TimePoint(std::chrono::seconds(plausible_seconds(about.stx_mtime.tv_sec)) +
                           std::chrono::nanoseconds(about.stx_mtime.tv_nsec));
  return Client{std::move(*record), std::move((*found)->bell)};
}

bool DirectoryTransaction::is_ticket(const std::string& id) const {
  return std::any_of(listing_.tickets.begin(), listing_.tickets.end(),
                     [&](const TicketName& name) { return name.id == id; });
}

Result<std::optional<Client>> DirectoryTransaction::ticket(const TicketName& name) {
  const std::string file = ticket_name(name);
  // A client that has both holds. (One that was killed between the two is dead.)
  if (contains(listing_.leases, name.id)) {
    // Any user can plant a file of that name: only a sound lease of the same owner takes the
    // ticket's place.
    auto held = lease(name.id);
    if (!held) return held;
    if (*held && (*held)->record.problem.empty() && is_identified((*held)->record.uid)) {
      ignore(file, std::nullopt, "it has become a lease", true);
      return std::nullopt;
    }
  }
  auto found = find(file, name.id);
  if (!found) return tl::make_unexpected(found.error());
  if (!*found) return std::nullopt;
  const struct statx& about = (*found)->about;
  const auto ignored = [&](const std::string& problem) {
    ignore_live(file, (*found)->owner, problem);
    return std::nullopt;
  };
  if (!(*found)->content.problem.empty()) return ignored((*found)->content.problem);
  if ((about.stx_mode & kEnded) != 0) return ignored("it was ended");
  auto record = read_record((*found)->content.text);
  if (!record) return ignored(record.error().message);
  if (record->id != name.id) return ignored("it names another id than its file");
  // Another user may have given the record this name (a hard link).
  const bool elsewhere = record->order && *record->order != name.number;
  const bool holds = record->version <= kProtocolVersion && !record->uuids.empty();
  if (elsewhere || holds) return ignored("it is a second name of a ticket or lease");
  if (contains(listing_.requests, name.id)) update(*record, (*found)->owner);
  record->uid = (*found)->owner;
  return Client{std::move(*record), std::move((*found)->bell)};
}

// Takes over the request that the ticket's owner has changed since it came.
void DirectoryTransaction::update(Record& ticket, uid_t owner) const {
  const std::string file = request_name(ticket.id);
  const auto about = look(file);
  // Two files of users that cannot be told apart here may be two users'.
  if (!about || !*about || (*about)->stx_uid != owner || !is_identified(owner)) return;
  const auto content = read(file, **about);
  if (!content || !content->problem.empty()) return;
  auto changed = read_record(content->text);
  if (!changed || changed->id != ticket.id || !changed->uuids.empty()) return;
  ticket.request = std::move(changed->request);
  ticket.profiles = changed->profiles;
}

Result<std::vector<Client>> DirectoryTransaction::leases() {
  std::vector<Client> found;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  for (const std::string& id : listing_.leases) {
    auto one = lease(id);
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

Result<std::vector<Drain>> DirectoryTransaction::drains() {
  std::vector<Drain> found;
  if (listing_.drains.empty()) return found;
  const auto keeper = this->owner();
  if (!keeper) return tl::make_unexpected(keeper.error());
  for (const std::string& uuid : listing_.drains) {
    const std::string file = drain_name(uuid);
    const auto about = look(file);
    if (!about) return tl::make_unexpected(about.error());
    if (!*about) continue;
    const uid_t owner = (*about)->stx_uid;
    if (const char* problem = type_problem(**about)) {
      ignore(file, is_mount_point(**about) ? std::nullopt : std::optional(owner), problem);
      continue;
    }
    if (owner != 0 && owner != *keeper) {
      ignore(file, owner, "only root or the owner of the harbour may drain a GPU");
      continue;
    }
    const auto content = read(file, **about);
    if (!content) return tl::make_unexpected(content.error());
    if (!content->problem.empty()) {
      ignore(file, owner, content->problem);
      continue;
    }
    auto drain = read_drain(content->text);
    if (!drain || drain_name(drain->uuid) != file) {
      ignore(file, owner, drain ? "it names another GPU" : drain.error().message);
      continue;
    }
    drain->uid = owner;
    found.push_back(std::move(*drain));
  }
  return found;
}

Result<uid_t> DirectoryTransaction::owner() const {
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

Result<void> DirectoryTransaction::write(const std::string& file, const std::string& text) {
  const UniqueFd fd(::openat(lock_.get(), file.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kFileMode));
  name_was_taken_ = !fd && errno == EEXIST;
  if (!fd) return file_error("write a record in", lock_.get());
  struct stat about {};
  // By chmod: with a umask of 077 other users could not read it.
  const bool readable = ::fstat(fd.get(), &about) == 0 && ((about.st_mode & 07777) == kFileMode ||
                                                           ::fchmod(fd.get(), kFileMode) == 0);
  if (readable && write_all(fd.get(), text)) return {};
  auto error = file_error("write a record in", lock_.get());
  ::unlinkat(lock_.get(), file.c_str(), 0);
  return error;
}

Result<void> DirectoryTransaction::write_lease(const Record& record) {
  return write(lease_name(record.id), write_record(record));
}

Result<void> DirectoryTransaction::write_ticket(const Record& record, std::uint64_t order) {
  Record ticket = record;
  TicketName name{order, record.id, order};
  // A file that is written again would lose its place: the change goes into a file beside it.
  if (has_own(ticket_name(name))) {
    ticket.order = name.number;
    const std::string file = request_name(record.id);
    struct statx planted {};
    // Another user's file cannot be replaced. Other clients then know the request of before, which
    // costs nothing but precision.
    if (look_at(lock_.get(), file, planted) && planted.stx_uid != ::geteuid()) return {};
    return replace(file, write_record(ticket));
  }
  ticket.order = name.number;
  const std::string text = write_record(ticket);
  if (!listing_.own_tickets.has_room_for(text.size())) remove_dead_tickets();
  if (!listing_.own_tickets.has_room_for(text.size())) {
    name_was_taken_ = false;
    return fail(ErrorKind::not_granted,
                fmt::format("you have {} waiting tickets, and {} or {} MiB of them is the limit; "
                            "'berth cancel' cancels some",
                            listing_.own_tickets.count, TicketTotals::kMostTickets,
                            TicketTotals::kMostBytes >> 20));
  }
  if (auto written = write(ticket_name(name), text); !written) return written;
  struct statx about {};
  if (look_at(lock_.get(), ticket_name(name), about)) {
    name.order = order_of(name.number, about);
  }
  auto& tickets = listing_.tickets;
  name.owner = ::geteuid();
  listing_.own_tickets.add(text.size());
  tickets.insert(std::upper_bound(tickets.begin(), tickets.end(), name), name);
  return {};
}

bool DirectoryTransaction::has_own(const std::string& file) const {
  struct statx about {};
  return look_at(lock_.get(), file, about) && S_ISREG(about.stx_mode) &&
         about.stx_uid == ::geteuid();
}

TicketName DirectoryTransaction::place(const TicketName& written) const {
  for (const TicketName& name : listing_.tickets) {
    if (name.id == written.id && name.number == written.number) return name;
  }
  return written;
}

// Under another name first, so that on a full disk the file before it stays. The name is random:
// another user could have taken one that is known.
Result<void> DirectoryTransaction::replace(const std::string& file, const std::string& text) {
  const std::string fresh = fmt::format("{}{}-{}", kNew, make_id(), file);
  if (auto written = write(fresh, text); !written) return written;
  if (::renameat(lock_.get(), fresh.c_str(), lock_.get(), file.c_str()) == 0) return {};
  auto error = file_error("write a file in", lock_.get());
  ::unlinkat(lock_.get(), fresh.c_str(), 0);
  return error;
}

Result<void> DirectoryTransaction::write_drain(const Drain& drain) {
  return replace(drain_name(drain.uuid), berth::write_drain(drain));
}

void DirectoryTransaction::remove_ticket(const TicketName& name) {
  std::erase(listing_.tickets, name);
  ::unlinkat(lock_.get(), ticket_name(name).c_str(), 0);
  // Even if the listing has none: this transaction may have written it.
  ::unlinkat(lock_.get(), request_name(name.id).c_str(), 0);
}

// Through a descriptor: what the name means may change between the look and the chmod.
Result<void> DirectoryTransaction::end(const std::string& file, uid_t owner) {
  const UniqueFd fd(::openat(lock_.get(), file.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return file_error("end a ticket or lease in", lock_.get());
  struct stat about {};
  if (::fstat(fd.get(), &about) != 0) return file_error("look at a file in", lock_.get());
  if (!S_ISREG(about.st_mode) || about.st_uid != owner) {
    return fail(ErrorKind::io, "the record was replaced while it was ended; try again");
  }
  const std::string path = fmt::format("/proc/self/fd/{}", fd.get());
  if (::chmod(path.c_str(), (about.st_mode & 07777) | kEnded) == 0) return {};
  return file_error("end a ticket or lease in", lock_.get());
}

Result<void> DirectoryTransaction::end_ticket(const TicketName& name) {
  const auto client = ticket(name);
  if (!client) return tl::make_unexpected(client.error());
  if (!*client) return {};  // it has ended by itself
  return end(ticket_name(name), (*client)->record.uid);
}

Result<void> DirectoryTransaction::end_lease(const Client& lease) {
  return end(lease_name(lease.record.id), lease.record.uid);
}

void DirectoryTransaction::ring(const Client& client) {
  berth::ring(client.bell.get());
}

Result<bool> DirectoryTransaction::remove_drain(const std::string& uuid) {
  if (::unlinkat(lock_.get(), drain_name(uuid).c_str(), 0) == 0) return true;
  if (errno == ENOENT) return false;
  return file_error("remove a drain in", lock_.get());
}

void DirectoryTransaction::tidy() {
  const uid_t me = ::geteuid();
  const bool any = is_root();
  const std::vector<IgnoredEntry> found = oddities_;  // more may be found on the way
  std::size_t removed = 0;
  for (const IgnoredEntry& oddity : found) {
    if (!oddity.leftover || (!any && oddity.owner && oddity.owner != me)) continue;
    if (++removed > kMostRemoved) return;
    remove_dead(oddity);
  }
  // One bell more than records is our own, whose record is being written.
  if (listing_.bells.size() > listing_.leases.size() + listing_.tickets.size() + 1) {
    remove_lone_bells();
  }
  remove_lone_requests();
}

// Makes room below the limit: a decision does not read every ticket, so it does not know all that
// are dead.
void DirectoryTransaction::remove_dead_tickets() {
  std::size_t removed = 0;
  const std::vector<TicketName> tickets = listing_.tickets;
  for (const TicketName& name : tickets) {
    if (removed == kMostRemoved) return;
    struct statx about {};
    if (name.owner != ::geteuid() || !look_at(lock_.get(), ticket_name(name), about)) continue;
    const auto bell = open_bell(lock_.get(), name.id, ::geteuid());
    if (!bell || bell->state != PeerBell::State::dead) continue;
    ::unlinkat(lock_.get(), bell_name(name.id).c_str(), 0);
    remove_ticket(name);
    listing_.own_tickets.remove(about.stx_size);
    ++removed;
  }
}

// The files of a dead client. The bell goes first, so that a kill between the two leaves what still
// counts as dead.
void DirectoryTransaction::remove_dead(const IgnoredEntry& oddity) {
  const std::string id = oddity.file.substr(oddity.file.rfind('-') + 1);
  const bool became_lease = !oddity.owner;
  if (auto lease = dead_lease(oddity, id)) cleared_.push_back(std::move(*lease));
  if (!became_lease) ::unlinkat(lock_.get(), bell_name(id).c_str(), 0);
  ::unlinkat(lock_.get(), oddity.file.c_str(), 0);
  ::unlinkat(lock_.get(), request_name(id).c_str(), 0);
}

void DirectoryTransaction::remove_lone_bells() {
  const uid_t me = ::geteuid();
  const bool any = is_root();
  const auto waiting = sorted_ids(listing_.tickets);
  std::size_t looked_at = 0;
  for (const std::string& id : listing_.bells) {
    if (contains(listing_.leases, id) || contains(waiting, id)) continue;
    struct statx about {};
    const std::string file = bell_name(id);
    if (!look_at(lock_.get(), file, about) || is_mount_point(about)) continue;
    // Only bells that may be removed count, so that those of other users do not protect them.
    if (!any && about.stx_uid != me) continue;
    if (++looked_at > kMostRemoved) return;
    if (plausible_seconds(about.stx_mtime.tv_sec) + kLoneBellSeconds > ::time(nullptr)) continue;
    const auto bell = open_bell(lock_.get(), id, about.stx_uid);
    if (bell && bell->state == PeerBell::State::dead) ::unlinkat(lock_.get(), file.c_str(), 0);
  }
}

// Changed requests whose ticket is gone, and files whose client was killed before it could rename
// them. All of them are written under the lock, so none is being written now.
void DirectoryTransaction::remove_lone_requests() {
  std::size_t looked_at = 0;
  const auto remove = [&](const std::string& file, const std::string& id) {
    struct statx about {};
    if (!look_at(lock_.get(), file, about) || !S_ISREG(about.stx_mode)) return;
    if ((!is_root() && about.stx_uid != ::geteuid()) || ++looked_at > kMostRemoved) return;
    if (plausible_seconds(about.stx_mtime.tv_sec) + kLoneBellSeconds > ::time(nullptr)) return;
    if (is_id(id)) {
      const auto bell = open_bell(lock_.get(), id, about.stx_uid);
      if (!bell || bell->state != PeerBell::State::dead) return;
    }
    ::unlinkat(lock_.get(), file.c_str(), 0);
  };
  if (!listing_.requests.empty()) {
    const auto waiting = sorted_ids(listing_.tickets);
    for (const std::string& id : listing_.requests) {
      if (!contains(waiting, id)) remove(request_name(id), id);
    }
  }
  for (const std::string& name : listing_.others) {
    const std::size_t target_at = kNew.size() + make_id().size() + 1;
    if (!name.starts_with(kNew) || name.size() <= target_at) continue;
    const std::string target = name.substr(target_at);
    if (target.starts_with(kDrain)) remove(name, "");
    if (target.starts_with(kRequest)) remove(name, target.substr(kRequest.size()));
  }
}

// The record of a lease that has ended, for the history. Only with the bell that proves that its
// owner made it as a lease: any user can plant a record.
std::optional<Record> DirectoryTransaction::dead_lease(const IgnoredEntry& oddity,
                                                       const std::string& id) const {
  if (!oddity.owner || oddity.file != lease_name(id)) return std::nullopt;
  const auto bell = look(bell_name(id));
  if (!bell || !*bell || !S_ISFIFO((*bell)->stx_mode) || (*bell)->stx_uid != *oddity.owner) {
    return std::nullopt;
  }
  const auto about = look(oddity.file);
  if (!about || !*about || (*about)->stx_uid != *oddity.owner) return std::nullopt;
  const auto content = read(oddity.file, **about);
  if (!content || !content->problem.empty()) return std::nullopt;
  auto record = read_record(content->text);
  if (!record || record->id != id) return std::nullopt;
  record->uid = *oddity.owner;
  return std::move(*record);
}

}  // namespace berth
