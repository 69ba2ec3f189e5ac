// Checks, reads, creates and marks files; see record_file.h.
#include "harbour/record_file.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <string_view>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/unique_fd.h"
#include "harbour/file_error.h"
#include "harbour/file_names.h"
#include "harbour/safe_directory.h"

namespace berth {
namespace {

constexpr mode_t kRecordFileMode = 0644;

// The modification time of a ticket's file: some second of the years 2106 to 2123, and an odd
// number of nanoseconds. (A file system that stores less precise times makes it even.)
constexpr int kHashBits = 29;  // 2^29 is less than the nanoseconds of a second
constexpr std::uint64_t kHashMask = (1ULL << kHashBits) - 1;
constexpr std::int64_t kFirstHashSecond = 1LL << 32;
constexpr std::int64_t kLastHashSecond = kFirstHashSecond + static_cast<std::int64_t>(kHashMask);

}  // namespace

Result<std::optional<struct statx>> stat_file(int directory, const std::string& file) {
  struct statx file_info {};
  if (stat_at(directory, file, file_info)) return file_info;
  if (errno == ENOENT) return std::nullopt;
  return file_error("inspect a file in", directory);
}

Result<FileContent> read_file(int directory, const std::string& file,
                              const struct statx& file_info) {
  if (const char* problem = find_file_problem(file_info)) return FileContent{"", problem};
  const UniqueFd fd = open_at(directory, file, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!fd) {
    if (errno == ENOENT || is_caused_by_owner(errno)) return FileContent{"", "it cannot be read"};
    return file_error("read a file in", directory);
  }
  struct stat opened {};
  if (::fstat(fd.get(), &opened) != 0) return file_error("inspect a file in", directory);
  if (opened.st_ino != file_info.stx_ino)
    return FileContent{"", "it was replaced during the check"};
  std::string text(static_cast<std::size_t>(file_info.stx_size), '\0');
  const auto length = ::pread(fd.get(), text.data(), text.size(), 0);
  if (length < 0) return file_error("read a file in", directory);
  text.resize(static_cast<std::size_t>(length));
  return FileContent{std::move(text), ""};
}

const char* find_file_problem(const struct statx& file_info) {
  if (is_mount_point(file_info)) return "a file system is mounted over it";
  if (!S_ISREG(file_info.stx_mode)) return "it is not a regular file";
  if (file_info.stx_size > kMaxRecordSize) return "it is too large";
  if (others_can_write(file_info)) return "other users can write to it";
  return nullptr;
}

bool others_can_write(const struct statx& file_info) {
  return S_ISREG(file_info.stx_mode) && (file_info.stx_mode & (S_IWGRP | S_IWOTH)) != 0;
}

bool others_can_link() {
  static const bool allowed = [] {
    int setting = 1;
    std::ifstream("/proc/sys/fs/protected_hardlinks") >> setting;
    return setting == 0;
  }();
  return allowed;
}

timespec to_modification_time(std::uint64_t request_hash) {
  timespec time{};
  time.tv_sec =
      kFirstHashSecond + static_cast<std::int64_t>((request_hash >> kHashBits) & kHashMask);
  time.tv_nsec = static_cast<std::int64_t>((request_hash & kHashMask) | 1);
  return time;
}

std::uint64_t to_request_hash(const statx_timestamp& modification_time) {
  const std::int64_t seconds = modification_time.tv_sec;  // the owner can set any value
  const std::uint64_t nanoseconds = modification_time.tv_nsec;
  if (seconds < kFirstHashSecond || seconds > kLastHashSecond || nanoseconds > kHashMask ||
      nanoseconds % 2 == 0)
    return 0;
  return static_cast<std::uint64_t>(seconds - kFirstHashSecond) << kHashBits | nanoseconds;
}

Result<void> create_file(int directory, const std::string& file, const std::string& text,
                         bool* name_taken, const std::optional<timespec>& modification_time) {
  const UniqueFd fd(::openat(directory, file.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                             kRecordFileMode));
  if (name_taken != nullptr) *name_taken = !fd && errno == EEXIST;
  if (!fd) return file_error("write a record in", directory);
  struct stat file_info {};
  // With a umask of 077 other users could not read the file.
  const bool readable =
      ::fstat(fd.get(), &file_info) == 0 &&
      ((file_info.st_mode & 07777) == kRecordFileMode || ::fchmod(fd.get(), kRecordFileMode) == 0);
  if (readable && write_all(fd.get(), text)) {
    if (modification_time) {
      // If this fails, other clients read the file.
      const std::array times{timespec{0, UTIME_OMIT}, *modification_time};
      (void)::futimens(fd.get(), times.data());
    }
    return {};
  }
  auto error = file_error("write a record in", directory);
  ::unlinkat(directory, file.c_str(), 0);
  return error;
}

Result<void> replace_file(int directory, const std::string& file, const std::string& text,
                          const std::optional<timespec>& modification_time) {
  const std::string temporary = temporary_file_name(file);
  TRY(create_file(directory, temporary, text, nullptr, modification_time));
  if (::renameat(directory, temporary.c_str(), directory, file.c_str()) == 0) return {};
  auto error = file_error("write a file in", directory);
  ::unlinkat(directory, temporary.c_str(), 0);
  return error;
}

Result<void> write_lease_file(int directory, const Record& record) {
  return create_file(directory, lease_file_name(record.id), format_record(record));
}

// Uses a descriptor, since the name may mean another file between the check and the chmod.
Result<void> set_ended_flag(int directory, const std::string& file, uid_t owner) {
  const UniqueFd fd(::openat(directory, file.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return file_error("end a ticket or lease in", directory);
  struct stat file_info {};
  if (::fstat(fd.get(), &file_info) != 0) return file_error("inspect a file in", directory);
  if (!S_ISREG(file_info.st_mode) || file_info.st_uid != owner) {
    return fail(ErrorKind::io,
                "another process replaced the record of the ticket or lease; try again");
  }
  const std::string path = fmt::format("/proc/self/fd/{}", fd.get());
  if (::chmod(path.c_str(), (file_info.st_mode & 07777) | kEndedFlag) == 0) return {};
  return file_error("end a ticket or lease in", directory);
}

bool has_ended_flag(int directory, const std::string& id, const std::optional<TicketName>& ticket,
                    uid_t owner) {
  struct statx file_info {};
  const std::string name = ticket ? ticket_file_name(*ticket) : lease_file_name(id);
  return stat_at(directory, name, file_info) && S_ISREG(file_info.stx_mode) &&
         file_info.stx_uid == owner && (file_info.stx_mode & kEndedFlag) != 0;
}

}  // namespace berth
