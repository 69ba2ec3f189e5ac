// Users: their names, and which uids mean root or an unknown user inside a user namespace.
#pragma once

#include <string>
#include <sys/types.h>

namespace berth {

// The name of `uid` in the host's user directory, or else its number. Each thread caches names,
// because the directory may be a slow server. The reference is valid until the thread ends.
const std::string& user_name(uid_t uid);

// `given` unless it is empty. Records of other hosts contain the name: uids differ between hosts.
const std::string& user_name(uid_t uid, const std::string& given);

// For messages about what only the owner `uid` and root may do: "bob or root", or "root".
std::string owner_or_root(uid_t uid);

// Whether `uid`, or the user of this process, is root of the host. Root inside a user namespace
// (rootless containers, `unshare -r`) is an ordinary user outside of it.
bool is_root(uid_t uid);
bool is_root();

// The uid that the kernel shows for each user that this user namespace does not map
// (/proc/sys/kernel/overflowuid, 65534 by default).
uid_t overflow_uid();

// False for the overflow uid inside a user namespace: two files with such an owner may belong to
// different users.
bool is_identified(uid_t uid);

}  // namespace berth
