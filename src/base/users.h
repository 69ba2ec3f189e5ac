// Names of users.
#pragma once

#include <string>
#include <sys/types.h>

namespace berth {

// The name of `uid` as the host knows it, else its number. Each thread remembers it: a host's user
// directory may be a slow server. What is returned lives as long as the thread.
const std::string& user_name(uid_t uid);

// The same, unless the name is given, as where several hosts meet: there a uid says nothing.
const std::string& user_name(uid_t uid, const std::string& given);

}  // namespace berth
