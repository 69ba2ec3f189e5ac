// Where what lasts is kept: each user's history and profiles, in a folder of his own that everybody
// can read.
//
// The archive is a directory like the harbour's, writable for all and sticky, and whoever needs it
// first makes it. Only its owner writes in a user's folder. Nothing that berth promises depends on
// what is in there: where it cannot be written, jobs run all the same.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "harbour/location.h"

namespace berth {

// Beside the default harbour, which a reboot may empty, a place that lasts; else inside of the
// harbour, so that who moves the one moves both.
std::string archive_path(const HarbourLocation& harbour);

struct UserFolder {
  uid_t uid = 0;
  std::string path;
  UniqueFd directory;
};

// This user's, to write in; made where there is none. An Error where the disk is nearly full: what
// is left there may be what the next lease needs.
Result<UserFolder> open_own_folder(const std::string& archive);

// The same, if there is one; makes nothing.
std::optional<UserFolder> find_own_folder(const std::string& archive);

// For one process of this user at a time, until it is closed. Not by a lock of the folder: whoever
// can read a file can lock it, and then nobody's job would end before he says so.
Result<UniqueFd> lock_folder(const UserFolder& folder);

// Everybody's that can be read, by user. Not among them: folders that belong to another user than
// their name says, and those where another file system is mounted (see open_inside()).
std::vector<UserFolder> open_user_folders(const std::string& archive);

// Opens a file or folder directly inside of another, if it is neither a symbolic link nor on
// another file system. A user can mount a file system of their own (FUSE) over what is theirs, and
// whoever reads there would wait for as long as that user likes. Empty, with errno set, if it
// cannot be opened.
UniqueFd open_inside(int directory, const char* name, int flags);

}  // namespace berth
