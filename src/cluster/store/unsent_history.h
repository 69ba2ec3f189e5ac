// The file in a user's folder that keeps history lines until they are sent to Redis.
//
// A line is written to the file before it is sent, and removed from it afterwards. So a process
// that is killed in between loses nothing. Readers merge lines that were sent twice.
#pragma once

#include <string>

#include "archive/user_folder.h"
#include "base/result.h"
#include "cluster/redis/url.h"

namespace berth {

// Appends a line to the file. Fails if the file is full (64 MiB).
Result<void> append_unsent(const UserFolder& folder, const std::string& line);

// Sends all lines of the file, unless another process is sending them or the server was recently
// unavailable. In these cases, and after an error, the next command of this user sends them.
Result<void> send_unsent(const UserFolder& folder, const RedisUrl& url);

}  // namespace berth
