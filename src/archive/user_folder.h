// The archive: a directory with a folder for each user, for the user's history and profiles.
//
// Like the harbour, the archive is writable for all users and sticky, and the first client that
// needs it creates it. All users can read a user's folder, and only the user writes in it. Leases
// do not depend on the archive: if it cannot be written, jobs run all the same.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "harbour/location.h"

namespace berth {

// The default harbour may be emptied by a reboot, so its archive is elsewhere. The archive of any
// other harbour is inside the harbour, so that BERTH_DIR sets both.
std::string archive_path(const HarbourLocation& harbour);

struct UserFolder {
  uid_t uid = 0;
  std::string path;
  UniqueFd directory;
};

// Opens the folder of this process's user for writing, and creates it if it does not exist. An
// Error if the disk is nearly full: the next lease may need the remaining space.
Result<UserFolder> open_own_folder(const std::string& archive);

// Opens the folder if it exists; nullopt if not.
std::optional<UserFolder> find_own_folder(const std::string& archive);

// Writes a file that all users can read, or replaces it: a reader sees the old content or the new.
// The caller has the lock of the folder. An Error if the disk would be nearly full.
Result<void> replace_file(const UserFolder& folder, const std::string& name,
                          const std::string& content);

// Waits until no other process of this user has the lock. The lock ends when the descriptor is
// closed. It is on a file that only the user can open, not on the folder itself: any user that can
// read a file can lock it, and could then delay the end of this user's jobs.
Result<UniqueFd> lock_folder(const UserFolder& folder);

// All users' folders that can be read, sorted by user. Leaves out folders that belong to another
// user than their name says, that other users can write to, or that are mount points (see
// open_inside()).
std::vector<UserFolder> open_user_folders(const std::string& archive);

// Opens a file or folder directly inside `directory`, if it is neither a symbolic link nor on
// another file system. A user can mount a file system (FUSE) over their own files, and a process
// that reads there would wait for as long as that user likes. Returns an empty descriptor, with
// errno, if it cannot be opened.
UniqueFd open_inside(int directory, const char* name, int flags);

}  // namespace berth
