// Lines of the history on their way to Redis: in a file of the user's folder until they are there.
//
// A line is in the file before anybody tries to send it, and leaves it after it was sent. So
// whoever is killed in between loses nothing; what is then sent twice is put together by who reads
// it.
#pragma once

#include <string>

#include "archive/user_folder.h"
#include "base/result.h"
#include "cluster/redis/url.h"

namespace berth {

// Keeps a line to be sent.
Result<void> append_unsent(const UserFolder& folder, const std::string& line);

// Sends what is kept, unless another process is about to, or the server was away a moment ago.
// Then, and where it fails, the next command of this user sends it.
Result<void> send_unsent(const UserFolder& folder, const RedisUrl& url);

}  // namespace berth
