// Files and directories in places where other users may create, rename and link files: found, made,
// checked and opened so that another user can neither redirect nor block what is done to them.
#pragma once

#include <cstdint>
#include <string>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"

namespace berth {

// A path that only root can redirect: each directory above its last component belongs to root and
// is sticky where others can write to it, and each symbolic link on the way is root's. The last
// component may be missing, or be anything.
struct TrustedPath {
  std::string canonical;  // without links, "." and ".."
  UniqueFd parent;        // O_PATH
  std::string name;       // in `parent`; "." for the root directory
};

// `path` must be absolute. The error (ErrorKind::io) names the component that is not root's.
Result<TrustedPath> resolve_trusted_path(const std::string& path);

// Can a user other than root and `user` rename what `user` makes in this directory? The overflow
// uid counts as root: inside a user namespace it is the owner of /tmp.
bool others_can_rename(const struct stat& directory, uid_t user);

// Makes `name` in `parent` and opens it, with exactly `mode` and no access control list, whatever
// the umask and the parent's default list are. Empty, with errno, if it cannot be made (EEXIST: it
// is there already), or was replaced before it could be opened (EPERM). Never changes a directory
// that it did not make.
UniqueFd make_directory_at(int parent, const std::string& name, mode_t mode);

// Does the open directory have an access control list that says more than its mode, or a default
// one, which its new files inherit? An Error if that cannot be found out.
Result<bool> has_access_list(int directory, const std::string& path);

// False, with errno, if there is one that cannot be removed.
bool remove_access_lists(int directory);

// What the kernel says of the file `name` in `directory`. Does not follow a symbolic link, and asks
// nothing of a file system that a user has mounted over the file (FUSE), which may never answer.
// Such a file has no type, no known owner, and the attribute STATX_ATTR_MOUNT_ROOT. False, with
// errno, if the kernel says nothing.
bool stat_at(int directory, const std::string& name, struct statx& file_info);

// Has a file system been mounted over the file?
bool is_mount_point(const struct statx& file_info);

// A file's time, which its owner can set to anything, as a number to calculate with.
std::int64_t clamp_file_time(std::int64_t seconds);

// openat() with O_NOFOLLOW and O_CLOEXEC that does not open a mount point either (EXDEV).
UniqueFd open_at(int directory, const std::string& name, int flags);

}  // namespace berth
