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
#include <set>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/pid_namespace.h"
#include "base/process.h"
#include "harbour/bell.h"
#include "harbour/file_error.h"
#include "harbour/location.h"

namespace berth {
namespace {

constexpr std::string_view kLease = "lease-";
constexpr std::string_view kTicket = "ticket-";
constexpr std::string_view kBell = "bell-";
constexpr std::string_view kDrain = "drain-";
constexpr std::string_view kEnd = "end-";
constexpr std::size_t kOrderDigits = 15;
constexpr std::uint64_t kLargestOrder = 999'999'999'999'999;
constexpr mode_t kFileMode = 0644;
constexpr mode_t kReadable = 0444;
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
  if (rest.size() < kOrderDigits + 2 || rest[kOrderDigits] != '-') return std::nullopt;
  const char* end = rest.data() + kOrderDigits;
  const auto [stop, problem] = std::from_chars(rest.data(), end, name.order);
  if (problem != std::errc{} || stop != end) return std::nullopt;
  name.id = rest.substr(kOrderDigits + 1);
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
  } else if (id_behind(kEnd)) {
    listing.ended.emplace_back(name.substr(kEnd.size()));
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

std::string end_name(const std::string& id) {
  return fmt::format("{}{}", kEnd, id);
}

std::string ticket_name(const TicketName& name) {
  return fmt::format("{}{:0{}}-{}", kTicket, name.order, kOrderDigits, name.id);
}

bool was_ended(int directory, const std::string& id, const std::optional<TicketName>& ticket,
               uid_t owner) {
  struct stat about {};
  const auto is_owners = [&](const std::string& name) {
    return ::fstatat(directory, name.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(about.st_mode) && about.st_uid == owner;
  };
  if (!is_owners(ticket ? ticket_name(*ticket) : lease_name(id))) return is_owners(end_name(id));
  // The record is where it was. That there is a file of ours called end-ID proves nothing: it may
  // be a hard link, or something that we left in a folder of somebody who moved it here.
  return (about.st_mode & (S_IRUSR | S_IRGRP | S_IROTH)) == 0;
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
      // Not even looked at: who made a directory can mount something there, of which others may
      // learn nothing (FUSE), or only after a long time.
      const bool directory = entry->d_type == DT_DIR;
      if (directory && name == kArchiveInHarbour) continue;
      if (!sort_in(name, directory ? unseen : listing_)) {
        listing_.others.emplace_back(name);
        ignore(std::string(name), std::nullopt, "it is not a file of berth's");
      } else if (directory) {
        ignore(std::string(name), std::nullopt, "it is a directory");
      }
    }
  }
  std::sort(listing_.tickets.begin(), listing_.tickets.end());
  return {};
}

void DirectoryTransaction::ignore(const std::string& file, std::optional<uid_t> owner,
                                  std::string problem, bool leftover) {
  oddities_.push_back({file, owner, std::move(problem), leftover});
}

// How many names it has says nothing: where the kernel lets others make hard links, they must not
// make a live lease count for nothing.
Result<std::optional<struct stat>> DirectoryTransaction::look(const std::string& file) {
  struct stat about {};
  // Looked at before it is opened: opening a device that somebody planted could do anything.
  if (::fstatat(lock_.get(), file.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return std::nullopt;
    return file_error("look at a file in", lock_.get());
  }
  const auto planted = [&](const char* problem) {
    ignore(file, about.st_uid, problem);
    return std::nullopt;
  };
  if (!S_ISREG(about.st_mode)) return planted("it is not a regular file");
  if (about.st_size > static_cast<off_t>(kLargestRecord)) return planted("it is far too large");
  // By its mode, since root could open it.
  if ((about.st_mode & kReadable) == 0) return planted("it was ended");
  return about;
}

Result<std::optional<std::string>> DirectoryTransaction::read(const std::string& file,
                                                              const struct stat& about) {
  const auto planted = [&](const char* problem) {
    ignore(file, about.st_uid, problem);
    return std::nullopt;
  };
  const UniqueFd fd(::openat(lock_.get(), file.c_str(),
                             O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (!fd) {
    if (errno == ENOENT) return std::nullopt;
    if (is_owners_doing(errno)) return planted("it cannot be read");
    return file_error("read a file in", lock_.get());
  }
  struct stat opened {};
  if (::fstat(fd.get(), &opened) != 0) return file_error("look at a file in", lock_.get());
  if (opened.st_ino != about.st_ino) return planted("it was replaced while it was looked at");
  std::string text(static_cast<std::size_t>(about.st_size), '\0');
  const auto length = ::pread(fd.get(), text.data(), text.size(), 0);
  if (length < 0) return file_error("read a file in", lock_.get());
  text.resize(static_cast<std::size_t>(length));
  return text;
}

Result<std::optional<Client>> DirectoryTransaction::client(const std::string& file,
                                                           const std::string& id) {
  const auto about = look(file);
  if (!about) return tl::make_unexpected(about.error());
  if (!*about) return std::nullopt;
  const uid_t owner = (*about)->st_uid;
  // The bell first: what a dead client left may well be half a record.
  auto bell = open_bell(lock_.get(), id, owner);
  if (!bell) return tl::make_unexpected(bell.error());
  if (bell->state != PeerBell::State::alive) {
    const bool dead = bell->state == PeerBell::State::dead;
    ignore(file, owner, dead ? "its process is gone" : bell->problem, dead);
    return std::nullopt;
  }
  const auto text = read(file, **about);
  if (!text) return tl::make_unexpected(text.error());
  if (!*text) return std::nullopt;
  auto record = read_record(**text);
  if (!record) {
    ignore(file, owner, record.error().message);
    return std::nullopt;
  }
  if (record->uid != owner || record->id != id) {
    ignore(file, owner, "it names another owner or id than it has");
    return std::nullopt;
  }
  const timespec& touched = (*about)->st_mtim;
  record->used =
      TimePoint(std::chrono::seconds(touched.tv_sec) + std::chrono::nanoseconds(touched.tv_nsec));
  return Client{std::move(*record), std::move(bell->end)};
}

Result<std::optional<Client>> DirectoryTransaction::lease(const std::string& id) {
  auto found = client(lease_name(id), id);
  if (!found || !*found) return found;
  Record& record = (*found)->record;
  if (record.uuids.empty() && !record.everything) {
    ignore(lease_name(id), record.uid, "it holds no GPU");
    return std::nullopt;
  }
  return found;
}

Result<std::optional<Client>> DirectoryTransaction::ticket(const TicketName& name) {
  // A client that was killed between its lease and the removal of its ticket is dead anyway; one
  // that lives and has both holds.
  if (has_lease_file(name.id)) {
    // Anybody could plant a file of that name: only a lease that counts takes the ticket's place.
    auto held = lease(name.id);
    if (!held) return held;
    if (*held) {
      ignore(ticket_name(name), std::nullopt, "it has become a lease", true);
      return std::nullopt;
    }
  }
  auto found = client(ticket_name(name), name.id);
  if (!found || !*found) return found;
  const Record& record = (*found)->record;
  // Somebody else may have given the record this name (a hard link), where the kernel lets him.
  const bool elsewhere = record.order && *record.order != name.order;
  const bool holds = record.version <= kProtocolVersion && !record.uuids.empty();
  if (elsewhere || holds) {
    ignore(ticket_name(name), record.uid, "it is a second name of a ticket or lease");
    return std::nullopt;
  }
  return found;
}

bool DirectoryTransaction::has_lease_file(const std::string& id) const {
  const auto& leases = listing_.leases;
  return std::find(leases.begin(), leases.end(), id) != leases.end();
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
    const uid_t owner = (*about)->st_uid;
    if (owner != 0 && owner != *keeper) {
      ignore(file, owner, "only root or the owner of the harbour may drain a GPU");
      continue;
    }
    const auto text = read(file, **about);
    if (!text) return tl::make_unexpected(text.error());
    if (!*text) continue;
    auto drain = read_drain(**text);
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
  // From the back, since a file that somebody planted with a huge number must not count.
  for (auto name = listing_.tickets.rbegin(); name != listing_.tickets.rend(); ++name) {
    const auto last = ticket(*name);
    if (!last) return tl::make_unexpected(last.error());
    if (*last) return std::min(name->order + 1, kLargestOrder);
  }
  return 1;
}

Result<void> DirectoryTransaction::write(const std::string& file, const std::string& text) {
  const UniqueFd fd(::openat(lock_.get(), file.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kFileMode));
  name_was_taken_ = !fd && errno == EEXIST;
  if (!fd) return file_error("write a record in", lock_.get());
  struct stat about {};
  // By chmod, since with a umask of 077 others could not read it.
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
  ticket.order = order;
  const TicketName name{order, record.id};
  if (auto written = write(ticket_name(name), write_record(ticket)); !written) return written;
  auto& tickets = listing_.tickets;
  tickets.insert(std::upper_bound(tickets.begin(), tickets.end(), name), name);
  return {};
}

Result<void> DirectoryTransaction::write_drain(const Drain& drain) {
  // Under another name first, so that on a full disk the drain before it stays.
  const std::string file = drain_name(drain.uuid);
  const std::string fresh = fmt::format("new-{}", file);
  ::unlinkat(lock_.get(), fresh.c_str(), 0);
  if (auto written = write(fresh, berth::write_drain(drain)); !written) return written;
  if (::renameat(lock_.get(), fresh.c_str(), lock_.get(), file.c_str()) == 0) return {};
  auto error = file_error("write a drain in", lock_.get());
  ::unlinkat(lock_.get(), fresh.c_str(), 0);
  return error;
}

void DirectoryTransaction::remove_ticket(const TicketName& name) {
  std::erase(listing_.tickets, name);
  ::unlinkat(lock_.get(), ticket_name(name).c_str(), 0);
}

Result<void> DirectoryTransaction::end(const std::string& file, const std::string& id) {
  if (::renameat(lock_.get(), file.c_str(), lock_.get(), end_name(id).c_str()) == 0) return {};
  auto error = file_error("end a ticket or lease in", lock_.get());
  struct stat about {};
  const bool mine = ::fstatat(lock_.get(), file.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0 &&
                    S_ISREG(about.st_mode) && (::geteuid() == 0 || about.st_uid == ::geteuid());
  if (mine && ::fchmodat(lock_.get(), file.c_str(), 0, 0) == 0) return {};
  return error;
}

Result<void> DirectoryTransaction::end_ticket(const TicketName& name) {
  return end(ticket_name(name), name.id);
}

Result<void> DirectoryTransaction::end_lease(const Client& lease) {
  return end(lease_name(lease.record.id), lease.record.id);
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
  std::set<std::string> known(listing_.leases.begin(), listing_.leases.end());
  for (const TicketName& name : listing_.tickets) known.insert(name.id);
  const std::vector<Oddity> found = oddities_;  // more may be found on the way
  for (const Oddity& oddity : found) {
    if (!oddity.leftover || (me != 0 && oddity.owner != me)) continue;
    // Its bell has the same id, which ends the name; the bell goes first, so that a kill between
    // the two leaves what still counts as dead.
    const std::string id = oddity.file.substr(oddity.file.rfind('-') + 1);
    const bool became_lease = !oddity.owner;
    if (auto lease = dead_lease(oddity, id)) cleared_.push_back(std::move(*lease));
    if (!became_lease) ::unlinkat(lock_.get(), bell_name(id).c_str(), 0);
    ::unlinkat(lock_.get(), oddity.file.c_str(), 0);
  }
  for (const std::string& id : listing_.ended) {
    struct stat about {};
    const std::string file = end_name(id);
    if (::fstatat(lock_.get(), file.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (me != 0 && about.st_uid != me) continue;
    const auto bell = open_bell(lock_.get(), id, about.st_uid);
    if (bell && bell->state == PeerBell::State::dead) ::unlinkat(lock_.get(), file.c_str(), 0);
  }
  // One bell more than records is our own, whose record is being written.
  if (listing_.bells.size() <= known.size() + 1) return;
  for (const std::string& id : listing_.bells) {
    if (known.contains(id)) continue;
    struct stat about {};
    const std::string file = bell_name(id);
    if (::fstatat(lock_.get(), file.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (about.st_mtime + kLoneBellSeconds > ::time(nullptr)) continue;
    if (me != 0 && about.st_uid != me) continue;
    const auto bell = open_bell(lock_.get(), id, about.st_uid);
    if (bell && bell->state == PeerBell::State::dead) ::unlinkat(lock_.get(), file.c_str(), 0);
  }
}

std::optional<Record> DirectoryTransaction::dead_lease(const Oddity& oddity,
                                                       const std::string& id) {
  if (!oddity.owner || oddity.file != lease_name(id)) return std::nullopt;
  const auto about = look(oddity.file);
  if (!about || !*about) return std::nullopt;
  const auto text = read(oddity.file, **about);
  if (!text || !*text) return std::nullopt;
  auto record = read_record(**text);
  if (!record || record->id != id) return std::nullopt;
  record->uid = *oddity.owner;  // who he is, the kernel says
  return std::move(*record);
}

}  // namespace berth
