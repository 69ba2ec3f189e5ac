// Names of users.
#pragma once

#include <string>
#include <sys/types.h>

namespace berth {

// The name of `uid` as the host knows it, else its number. Remembered: a host's user directory may
// be a slow server. Not thread-safe.
const std::string& user_name(uid_t uid);

}  // namespace berth
