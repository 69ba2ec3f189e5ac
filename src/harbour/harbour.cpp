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

bool is_same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

Harbour::Harbour(HarbourLocation location, UniqueFd directory)
    : location_(std::move(location)), directory_(std::move(directory)) {
  if (location_.url) store_ = std::make_unique<RedisHostStore>(*location_.url, location_.host);
}

Result<Harbour> Harbour::open(HarbourLocation location, const DirectoryInitializer& initialize) {
  auto directory = open_harbour_directory(location, initialize);
  if (!directory) return tl::make_unexpected(directory.error());
  return Harbour(std::move(location), std::move(*directory));
}

Result<std::optional<Harbour>> Harbour::open_existing(HarbourLocation location) {
  struct stat file_info {};
  const bool needed = location.url || location.configuration_error;
  if (!needed && ::lstat(location.path.c_str(), &file_info) != 0 && errno == ENOENT)
    return std::nullopt;
  auto harbour = open(std::move(location));
  if (!harbour) return tl::make_unexpected(harbour.error());
  return std::move(*harbour);
}

bool Harbour::is_still_at_path() const {
  struct stat opened {};
  struct stat named {};
  return ::fstat(directory_.get(), &opened) == 0 && ::stat(location_.path.c_str(), &named) == 0 &&
         is_same_file(opened, named);
}

Result<std::unique_ptr<Transaction>> Harbour::begin(LockMode mode, const LockOptions& lock_options,
                                                    const std::string& client) {
  // Before the lock, which nobody keeps while he talks to a server.
  StoreSnapshot snapshot;
  if (store_) {
    auto read = store_->read_snapshot(client, directory_id());
    if (!read) return tl::make_unexpected(read.error());
    snapshot = std::move(*read);
  }
  auto directory = begin_directory(mode, lock_options);
  if (!directory) return tl::make_unexpected(directory.error());
  if (!store_) return std::unique_ptr<Transaction>(std::move(*directory));
  return std::unique_ptr<Transaction>(std::make_unique<RedisTransaction>(
      *store_, std::move(snapshot), std::move(*directory), directory_id()));
}

std::string Harbour::directory_id() const {
  if (!store_) return "";
  static const std::string boot = [] {
    std::string id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
    return id;
  }();
  struct stat file_info {};
  if (boot.empty() || ::fstat(directory_.get(), &file_info) != 0) return "";
  return fmt::format("{}:{:x}:{:x}", boot, file_info.st_dev, file_info.st_ino);
}

Result<std::unique_ptr<DirectoryTransaction>> Harbour::begin_directory(
    LockMode mode, const LockOptions& lock_options) {
  constexpr int kMaxReplacements = 100;
  for (int i = 0; i < kMaxReplacements; ++i) {
    // An open file of its own: the lock belongs to it, and ends with the transaction.
    PrivateFd lock = UniqueFd(::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!lock && errno != ENOENT) return file_error("open the harbour", location_.path);
    if (lock) {
      if (auto locked = lock_directory(lock.get(), mode, lock_options); !locked) {
        return tl::make_unexpected(locked.error());
      }
      if (is_still_at_path()) {
        auto transaction = std::make_unique<DirectoryTransaction>(std::move(lock));
        if (auto listed = transaction->list(); !listed) return tl::make_unexpected(listed.error());
        return transaction;
      }
    }
    auto directory = open_harbour_directory(location_);
    if (!directory) return tl::make_unexpected(directory.error());
    directory_ = std::move(*directory);
  }
  return fail(ErrorKind::io,
              fmt::format("{} is replaced again and again; find out who does it", location_.path));
}

Result<Harbour::OwnBell> Harbour::make_bell() {
  constexpr int kMaxAttempts = 16;
  for (int i = 0; i < kMaxAttempts; ++i) {
    std::string id = make_id();
    auto bell = berth::make_bell(directory_.get(), id);
    if (!bell && !is_still_at_path()) {  // the directory was deleted
      auto directory = open_harbour_directory(location_);
      if (!directory) return tl::make_unexpected(directory.error());
      directory_ = std::move(*directory);
      continue;
    }
    if (!bell) return tl::make_unexpected(bell.error());
    if (*bell) return OwnBell{std::move(id), std::move(**bell)};
  }
  return fail(ErrorKind::io,
              fmt::format("every name that berth tried in {} is taken; see 'berth doctor'",
                          location_.path));
}

void Harbour::remove_bell(const std::string& id) {
  ::unlinkat(directory_.get(), bell_file_name(id).c_str(), 0);
}

void Harbour::remove_client_files(const std::string& id, const std::optional<TicketName>& ticket) {
  remove_bell(id);
  if (ticket && !store_) {
    ::unlinkat(directory_.get(), ticket_file_name(*ticket).c_str(), 0);
    ::unlinkat(directory_.get(), request_file_name(id).c_str(), 0);
  } else if (!ticket) {
    ::unlinkat(directory_.get(), lease_file_name(id).c_str(), 0);
  }
}

void Harbour::remove_client(const std::string& id, const std::optional<TicketName>& ticket) {
  remove_client_files(id, ticket);
  if (!store_) return;
  if (ticket) {
    store_->leave_queue(id);
  } else {
    store_->release(id);
  }
}

bool Harbour::has_bell(const std::string& id, int bell) const {
  struct stat opened {};
  struct stat named {};
  const std::string path = fmt::format("{}/{}", location_.path, bell_file_name(id));
  return ::fstat(bell, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         is_same_file(opened, named);
}

bool Harbour::is_lease_ended(const std::string& id) const {
  return has_ended_flag(directory_.get(), id, std::nullopt, ::geteuid());
}

void Harbour::touch_lease(const std::string& id) const {
  ::utimensat(directory_.get(), lease_file_name(id).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

bool Harbour::has_ticket(const TicketName& name) const {
  if (store_) return true;  // its bell, which can be watched, says whether it lives
  return ::faccessat(directory_.get(), ticket_file_name(name).c_str(), F_OK, AT_SYMLINK_NOFOLLOW) ==
         0;
}

bool Harbour::has_lease(const std::string& id) const {
  struct stat file_info {};
  const std::string path = fmt::format("{}/{}", location_.path, lease_file_name(id));
  return ::lstat(path.c_str(), &file_info) == 0 && S_ISREG(file_info.st_mode) &&
         file_info.st_uid == ::geteuid();
}

Result<StoppedProcesses> find_stopped_processes(Harbour& harbour) {
  constexpr std::size_t kMaxFrontTickets = 16;  // of one user
  std::vector<Record> front;
  std::map<uid_t, std::size_t> counts;
  {
    auto transaction = harbour.begin(LockMode::shared, {});
    if (!transaction) return tl::make_unexpected(transaction.error());
    auto visited = (*transaction)->visit_front([&](const Client& client) {
      front.push_back(client.record);
      return ++counts[client.record.uid] >= kMaxFrontTickets;
    });
    if (!visited) return tl::make_unexpected(visited.error());
  }
  StoppedProcesses stopped;
  stopped.read(front);
  return stopped;
}

}  // namespace berth
