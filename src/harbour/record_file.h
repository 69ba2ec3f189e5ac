// Reads and writes single files of the harbour's directory: records and drains.
//
// Any user can put any file into the directory, so each file is checked before it is opened:
// opening a device can have any effect, and a file system that a user has mounted there may never
// answer. None of these functions blocks. `directory` is an open descriptor of the harbour's
// directory.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/result.h"
#include "harbour/record.h"
#include "harbour/transaction.h"

namespace berth {

// On the record of a ticket or of a shell's lease: its owner or root has ended it from outside.
// Only the owner of the file and root can set this bit, not even the owner of the directory.
constexpr mode_t kEndedFlag = S_ISVTX;

// The text of a file, or the reason why it cannot be read.
struct FileContent {
  std::string text;
  std::string problem;
};

// The kernel's information about a file (see stat_at()); nullopt if it does not exist.
Result<std::optional<struct statx>> stat_file(int directory, const std::string& file);
// `file_info` is that of the same file. An Error means that this process or host cannot read now.
Result<FileContent> read_file(int directory, const std::string& file,
                              const struct statx& file_info);

// Why a file cannot be a record or drain, known before it is opened; null if it can be one.
const char* find_file_problem(const struct statx& file_info);
// Berth never makes such a file. Another user may have written its content, and may have given it
// its name: the kernel permits hard links to files that a user can write to.
bool others_can_write(const struct statx& file_info);
// Can a user make a hard link to another user's file? Where the kernel allows it
// (fs.protected_hardlinks=0), other users can give a record a second name, which changes its ctime.
bool others_can_link();

// The modification time of a ticket's file says which tickets of its owner ask for the same: those
// with the same time. The listing has this time already, so of many equal tickets a decision opens
// only one. It is a time in the far future, since no program sets that by accident, and programs
// that remove old files leave it alone.
timespec to_modification_time(std::uint64_t request_hash);
// 0 if the time is not such a time; else the part of the hash that it contains.
std::uint64_t to_request_hash(const statx_timestamp& modification_time);

// Writes a new file that all users can read, whatever the umask is. On an Error there is no new
// file. Sets `name_taken` to whether the reason was an existing file of that name.
Result<void> create_file(int directory, const std::string& file, const std::string& text,
                         bool* name_taken = nullptr,
                         const std::optional<timespec>& modification_time = {});
// Writes a temporary file first, so that on a full disk the old file stays.
Result<void> replace_file(int directory, const std::string& file, const std::string& text,
                          const std::optional<timespec>& modification_time = {});
// Writes the record of a lease. Needs no transaction if the caller holds the lease already.
Result<void> write_lease_file(int directory, const Record& record);

// Sets kEndedFlag of a regular file of `owner`. Needs no disk space.
Result<void> set_ended_flag(int directory, const std::string& file, uid_t owner);
// Does the record of this owner's client (the ticket if `ticket` is set, else the lease) have
// kEndedFlag?
bool has_ended_flag(int directory, const std::string& id, const std::optional<TicketName>& ticket,
                    uid_t owner);

}  // namespace berth
