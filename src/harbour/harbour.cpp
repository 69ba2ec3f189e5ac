// The directory that is the harbour; see harbour.h.
#include "harbour/harbour.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <sys/stat.h>
#include <unistd.h>

#include "cluster/store/redis_transaction.h"
#include "harbour/bell.h"
#include "harbour/file_error.h"

namespace berth {
namespace {

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

Harbour::Harbour(HarbourLocation where, UniqueFd directory)
    : where_(std::move(where)), directory_(std::move(directory)) {
  if (where_.url) part_ = std::make_unique<RedisHostStore>(*where_.url, where_.host);
}

Result<Harbour> Harbour::open(HarbourLocation where, const Fill& fill) {
  auto directory = open_harbour_directory(where, fill);
  if (!directory) return tl::make_unexpected(directory.error());
  return Harbour(std::move(where), std::move(*directory));
}

Result<std::optional<Harbour>> Harbour::open_existing(HarbourLocation where) {
  struct stat about {};
  const bool needed = where.url || where.wrong;
  if (!needed && ::lstat(where.path.c_str(), &about) != 0 && errno == ENOENT) return std::nullopt;
  auto harbour = open(std::move(where));
  if (!harbour) return tl::make_unexpected(harbour.error());
  return std::move(*harbour);
}

bool Harbour::still_named() const {
  struct stat mine {};
  struct stat named {};
  return ::fstat(directory_.get(), &mine) == 0 && ::stat(where_.path.c_str(), &named) == 0 &&
         same_file(mine, named);
}

Result<std::unique_ptr<Transaction>> Harbour::begin(LockMode mode, const Patience& patience,
                                                    const std::string& client) {
  // Before the lock, which nobody keeps while he talks to a server.
  StoreSnapshot sight;
  if (part_) {
    auto seen = part_->look(client, directory_id());
    if (!seen) return tl::make_unexpected(seen.error());
    sight = std::move(*seen);
  }
  auto here = begin_here(mode, patience);
  if (!here) return tl::make_unexpected(here.error());
  if (!part_) return std::unique_ptr<Transaction>(std::move(*here));
  return std::unique_ptr<Transaction>(
      std::make_unique<RedisTransaction>(*part_, std::move(sight), std::move(*here), directory_id()));
}

std::string Harbour::directory_id() const {
  if (!part_) return "";
  static const std::string boot = [] {
    std::string id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
    return id;
  }();
  struct stat about {};
  if (boot.empty() || ::fstat(directory_.get(), &about) != 0) return "";
  return fmt::format("{}:{:x}:{:x}", boot, about.st_dev, about.st_ino);
}

Result<std::unique_ptr<DirectoryTransaction>> Harbour::begin_here(LockMode mode,
                                                                  const Patience& patience) {
  constexpr int kMostReplacements = 100;
  for (int i = 0; i < kMostReplacements; ++i) {
    // An open file of its own: the lock belongs to it, and ends with the transaction.
    PrivateFd lock = UniqueFd(::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!lock && errno != ENOENT) return file_error("open the harbour", where_.path);
    if (lock) {
      if (auto locked = lock_directory(lock.get(), mode, patience); !locked) {
        return tl::make_unexpected(locked.error());
      }
      if (still_named()) {
        auto transaction = std::make_unique<DirectoryTransaction>(std::move(lock));
        if (auto listed = transaction->list(); !listed) return tl::make_unexpected(listed.error());
        return transaction;
      }
    }
    auto directory = open_harbour_directory(where_);
    if (!directory) return tl::make_unexpected(directory.error());
    directory_ = std::move(*directory);
  }
  return fail(ErrorKind::io,
              fmt::format("{} is replaced again and again; find out who does it", where_.path));
}

Result<Harbour::OwnBell> Harbour::make_bell() {
  constexpr int kMostTries = 16;
  for (int i = 0; i < kMostTries; ++i) {
    std::string id = make_id();
    auto bell = berth::make_bell(directory_.get(), id);
    if (!bell && !still_named()) {  // the directory was deleted
      auto directory = open_harbour_directory(where_);
      if (!directory) return tl::make_unexpected(directory.error());
      directory_ = std::move(*directory);
      continue;
    }
    if (!bell) return tl::make_unexpected(bell.error());
    if (*bell) return OwnBell{std::move(id), std::move(**bell)};
  }
  return fail(
      ErrorKind::io,
      fmt::format("every name that berth tried in {} is taken; see 'berth doctor'", where_.path));
}

void Harbour::remove_bell(const std::string& id) {
  ::unlinkat(directory_.get(), bell_name(id).c_str(), 0);
}

void Harbour::remove_files(const std::string& id, const std::optional<TicketName>& ticket) {
  remove_bell(id);
  if (ticket && !part_) {
    ::unlinkat(directory_.get(), ticket_name(*ticket).c_str(), 0);
    ::unlinkat(directory_.get(), request_name(id).c_str(), 0);
  } else if (!ticket) {
    ::unlinkat(directory_.get(), lease_name(id).c_str(), 0);
  }
}

void Harbour::remove(const std::string& id, const std::optional<TicketName>& ticket) {
  remove_files(id, ticket);
  if (!part_) return;
  if (ticket) {
    part_->leave(id);
  } else {
    part_->release(id);
  }
}

bool Harbour::has_bell(const std::string& id, int bell) const {
  struct stat mine {};
  struct stat named {};
  const std::string path = fmt::format("{}/{}", where_.path, bell_name(id));
  return ::fstat(bell, &mine) == 0 && ::lstat(path.c_str(), &named) == 0 && same_file(mine, named);
}

bool Harbour::is_ended(const std::string& id) const {
  return was_ended(directory_.get(), id, std::nullopt, ::geteuid());
}

void Harbour::touch_lease(const std::string& id) const {
  ::utimensat(directory_.get(), lease_name(id).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

bool Harbour::has_ticket(const TicketName& name) const {
  if (part_) return true;  // its bell, which can be watched, says whether it lives
  return ::faccessat(directory_.get(), ticket_name(name).c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool Harbour::has_lease(const std::string& id) const {
  struct stat about {};
  const std::string path = fmt::format("{}/{}", where_.path, lease_name(id));
  return ::lstat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode) &&
         about.st_uid == ::geteuid();
}

Result<StoppedProcesses> find_stopped(Harbour& harbour) {
  constexpr std::size_t kFront = 16;  // of one user
  std::vector<Record> front;
  std::map<uid_t, std::size_t> counts;
  {
    auto transaction = harbour.begin(LockMode::shared, {});
    if (!transaction) return tl::make_unexpected(transaction.error());
    auto visited = (*transaction)->visit_front([&](const Client& client) {
      front.push_back(client.record);
      return ++counts[client.record.uid] >= kFront;
    });
    if (!visited) return tl::make_unexpected(visited.error());
  }
  StoppedProcesses stopped;
  stopped.read(front);
  return stopped;
}

}  // namespace berth
