// Sockets to Redis servers: close-on-exec, non-blocking, connected within a timeout.
//
// The sockets of hiredis 0.14 are not used: an exec in another thread inherits them, a server that
// closes the connection raises SIGPIPE in a program that may not be Berth, and their timeout is for
// each read, not for a whole reply.
#pragma once

#include <chrono>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "cluster/redis/url.h"

namespace berth {

// `timeout` is for each address that a name resolves to. An error's message is only the reason
// ("Connection refused"): the caller adds the server's name.
Result<UniqueFd> connect_tcp(const RedisUrl::Address& address, std::chrono::milliseconds timeout);
Result<UniqueFd> connect_unix(const std::string& path, std::chrono::milliseconds timeout);

// poll(2) for one descriptor, continued after signals. False: nothing happened by the deadline.
bool poll_until(std::chrono::steady_clock::time_point deadline, int fd, short events);

}  // namespace berth
