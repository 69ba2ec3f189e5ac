// The directory that is the harbour; see harbour.h.
#include "harbour/harbour.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harbour/bell.h"
#include "harbour/file_error.h"

namespace berth {
namespace {

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

Result<Harbour> Harbour::open(HarbourLocation where, const Fill& fill) {
  auto directory = open_harbour_directory(where, fill);
  if (!directory) return tl::make_unexpected(directory.error());
  return Harbour(std::move(where), std::move(*directory));
}

Result<std::optional<Harbour>> Harbour::open_existing(HarbourLocation where) {
  struct stat about {};
  if (::lstat(where.path.c_str(), &about) != 0 && errno == ENOENT) return std::nullopt;
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

Result<std::unique_ptr<Transaction>> Harbour::begin(LockMode mode, const Patience& patience) {
  return begin_here(mode, patience);
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
  return fail(ErrorKind::harbour,
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
      ErrorKind::harbour,
      fmt::format("every name that berth tried in {} is taken; see 'berth doctor'", where_.path));
}

void Harbour::remove(const std::string& id, const std::optional<TicketName>& ticket) {
  ::unlinkat(directory_.get(), bell_name(id).c_str(), 0);
  if (ticket) {
    ::unlinkat(directory_.get(), ticket_name(*ticket).c_str(), 0);
  } else {
    ::unlinkat(directory_.get(), lease_name(id).c_str(), 0);
  }
}

bool Harbour::has_bell(const std::string& id, int bell) const {
  struct stat mine {};
  struct stat named {};
  const std::string path = fmt::format("{}/{}", where_.path, bell_name(id));
  return ::fstat(bell, &mine) == 0 && ::lstat(path.c_str(), &named) == 0 && same_file(mine, named);
}

bool Harbour::is_ended(const std::string& id) const {
  return was_ended(directory_.get(), id, std::nullopt);
}

void Harbour::forget_end(const std::string& id) {
  ::unlinkat(directory_.get(), end_name(id).c_str(), 0);
}

void Harbour::touch_lease(const std::string& id) const {
  ::utimensat(directory_.get(), lease_name(id).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

bool Harbour::has_ticket(const TicketName& name) const {
  return ::faccessat(directory_.get(), ticket_name(name).c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool Harbour::has_lease(const std::string& id) const {
  struct stat about {};
  const std::string path = fmt::format("{}/{}", where_.path, lease_name(id));
  return ::lstat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode) &&
         about.st_uid == ::geteuid();
}

}  // namespace berth
