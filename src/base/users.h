// Users: their names, and what a user namespace makes of their numbers.
#pragma once

#include <string>
#include <sys/types.h>

namespace berth {

// The name of `uid` as the host knows it, else its number. Each thread remembers it: a host's user
// directory may be a slow server. What is returned lives as long as the thread.
const std::string& user_name(uid_t uid);

// The same, unless the name is given, as where several hosts meet: there a uid says nothing.
const std::string& user_name(uid_t uid, const std::string& given);

// Is `uid` root of the host? Root inside a user namespace (rootless containers, `unshare -r`) is an
// ordinary user outside of it.
bool is_root(uid_t uid);
// Does this process run as root of the host?
bool is_root();

// The uid that the kernel shows in place of every user that this user namespace does not map
// (/proc/sys/kernel/overflowuid, 65534 by default).
uid_t overflow_uid();

// False for the overflow uid inside a user namespace: two files with such an owner may belong to
// different users.
bool is_identified(uid_t uid);

}  // namespace berth
