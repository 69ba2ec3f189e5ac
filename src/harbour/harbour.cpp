// Opens the harbour, begins transactions and manages a client's own files; see harbour.h.
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
#include "harbour/file_names.h"
#include "harbour/record_file.h"
#include "harbour/safe_directory.h"

namespace berth {

Harbour::Harbour(HarbourLocation location, UniqueFd directory)
    : location_(std::move(location)), directory_(std::move(directory)) {
  if (location_.url) store_ = std::make_unique<RedisHostStore>(*location_.url, location_.host);
}

Result<Harbour> Harbour::open(HarbourLocation location, const DirectoryInitializer& initialize) {
  UniqueFd directory = TRY(open_harbour_directory(location, initialize));
  return Harbour(std::move(location), std::move(directory));
}

Result<std::optional<Harbour>> Harbour::open_existing(HarbourLocation location) {
  struct stat file_info {};
  const bool needed = location.url || location.configuration_error;
  if (!needed && ::lstat(location.path.c_str(), &file_info) != 0 && errno == ENOENT)
    return std::nullopt;
  return TRY(open(std::move(location)));
}

bool Harbour::is_still_at_path() const {
  struct stat opened {};
  struct stat named {};
  return ::fstat(directory_.get(), &opened) == 0 && ::stat(location_.path.c_str(), &named) == 0 &&
         is_same_file(opened, named);
}

Result<std::unique_ptr<Transaction>> Harbour::begin(LockMode mode, const LockOptions& lock_options,
                                                    const std::string& client) {
  // Before the lock: a client must not wait for a server while it holds the lock.
  StoreSnapshot snapshot;
  if (store_) snapshot = TRY(store_->read_snapshot(client, directory_id()));
  std::unique_ptr<DirectoryTransaction> directory = TRY(begin_directory(mode, lock_options));
  if (!store_) return directory;
  return std::make_unique<RedisTransaction>(*store_, std::move(snapshot), std::move(directory),
                                            directory_id());
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
    // A lock belongs to an open file, so each transaction opens the directory again.
    PrivateFd lock = UniqueFd(::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!lock && errno != ENOENT) return file_error("open the harbour", location_.path);
    if (lock) {
      TRY(lock_directory(lock.get(), mode, lock_options));
      if (is_still_at_path()) {
        auto transaction = std::make_unique<DirectoryTransaction>(std::move(lock));
        TRY(transaction->list());
        return transaction;
      }
    }
    directory_ = TRY(open_harbour_directory(location_));
  }
  return fail(ErrorKind::io,
              fmt::format("another process keeps replacing {}; find and stop that process",
                          location_.path));
}

Result<Harbour::OwnBell> Harbour::make_bell(const std::string& preferred_id) {
  constexpr int kMaxAttempts = 16;
  for (int i = 0; i < kMaxAttempts; ++i) {
    std::string id = i == 0 && !preferred_id.empty() ? preferred_id : make_id();
    auto bell = berth::make_bell(directory_.get(), id);
    if (!bell && !is_still_at_path()) {  // the directory was deleted
      directory_ = TRY(open_harbour_directory(location_));
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

std::optional<Record> Harbour::read_own_lease(const std::string& id) const {
  const std::string file = lease_file_name(id);
  const auto file_info = stat_file(directory_.get(), file);
  if (!file_info || !*file_info || (*file_info)->stx_uid != ::geteuid() ||
      find_file_problem(**file_info) != nullptr)
    return std::nullopt;
  const auto content = read_file(directory_.get(), file, **file_info);
  if (!content || !content->problem.empty()) return std::nullopt;
  auto record = parse_record(content->text);
  if (!record || record->id != id || record->version != kProtocolVersion ||
      !record->problem.empty())
    return std::nullopt;
  return std::move(*record);
}

bool Harbour::is_lease_ended(const std::string& id) const {
  return has_ended_flag(directory_.get(), id, std::nullopt, ::geteuid());
}

void Harbour::touch_lease(const std::string& id) const {
  ::utimensat(directory_.get(), lease_file_name(id).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

bool Harbour::has_ticket(const TicketName& name) const {
  if (store_) return true;
  return ::faccessat(directory_.get(), ticket_file_name(name).c_str(), F_OK, AT_SYMLINK_NOFOLLOW) ==
         0;
}

bool Harbour::has_lease(const std::string& id) const {
  struct stat file_info {};
  const std::string path = fmt::format("{}/{}", location_.path, lease_file_name(id));
  return ::lstat(path.c_str(), &file_info) == 0 && S_ISREG(file_info.st_mode) &&
         file_info.st_uid == ::geteuid();
}

Result<std::unique_ptr<Transaction>> begin_to_ring_front(Harbour& harbour, LockMode mode) {
  constexpr std::size_t kMaxCheckedPerUser = 16;  // each costs a read of /proc
  std::vector<Record> front;
  std::map<uid_t, std::size_t> counts;
  {
    const std::unique_ptr<Transaction> transaction = TRY(harbour.begin(LockMode::shared, {}));
    TRY(transaction->visit_front([&](const Client& client) {
      front.push_back(client.record);
      return ++counts[client.record.uid] >= kMaxCheckedPerUser;
    }));
  }
  StoppedProcesses stopped;
  stopped.read(front);
  std::unique_ptr<Transaction> transaction = TRY(harbour.begin(mode, {}));
  transaction->set_stopped_processes(std::move(stopped));
  return transaction;
}

}  // namespace berth
