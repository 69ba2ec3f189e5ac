// Finds, creates, checks and opens files in directories where other users can create, rename and
// link files, so that another user can neither redirect nor block the operation.
#pragma once

#include <cstdint>
#include <string>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"

namespace berth {

// A path that only root can redirect. Each directory above the last component belongs to root and
// is sticky if other users can write to it, and each symbolic link on the way belongs to root. The
// last component may be missing, or a file of any type and owner.
struct TrustedPath {
  std::string canonical;  // without symbolic links, "." and ".."
  UniqueFd parent;        // opened with O_PATH
  std::string name;       // in `parent`; "." for the root directory
};

// `path` must be absolute. The error (ErrorKind::io) names the component that another user can
// redirect.
Result<TrustedPath> resolve_trusted_path(const std::string& path);

// Can a user other than root and `user` rename what `user` creates in this directory? The overflow
// uid counts as root: inside a user namespace it is the owner of /tmp.
bool others_can_rename(const struct stat& directory, uid_t user);

// Creates the directory `name` in `parent` and opens it. It has exactly `mode` and no access
// control list, whatever the umask and the parent's default list are. Returns an empty descriptor,
// with errno, if it cannot be created (EEXIST: it exists), or if another user replaced it before it
// was opened (EPERM). Never changes a directory that it did not create.
UniqueFd make_directory_at(int parent, const std::string& name, mode_t mode);

// Does the open directory have an access control list that says more than its mode, or a default
// list, which its new files inherit? An Error means that this cannot be determined. `path` is for
// the message.
Result<bool> has_access_list(int directory, const std::string& path);

// Removes both kinds of lists. Returns false, with errno, if that fails.
bool remove_access_lists(int directory);

bool is_same_file(const struct stat& a, const struct stat& b);

// The kernel's information about the file `name` in `directory`. Does not follow a symbolic link,
// and sends no request to a file system that a user has mounted over the file (FUSE), since it may
// never answer. Such a mount point gets no type, an invalid owner and the attribute
// STATX_ATTR_MOUNT_ROOT. Returns false, with errno, if there is no such file or the kernel refuses.
bool stat_at(int directory, const std::string& name, struct statx& file_info);

// Is a file system mounted over the file? For results of stat_at().
bool is_mount_point(const struct statx& file_info);

// Limits a file's time to a range in which calculations do not overflow. The owner of a file can
// set its time to any value.
std::int64_t clamp_file_time(std::int64_t seconds);

// openat() with O_NOFOLLOW and O_CLOEXEC. Refuses a mount point (EXDEV).
UniqueFd open_at(int directory, const std::string& name, int flags);

}  // namespace berth
