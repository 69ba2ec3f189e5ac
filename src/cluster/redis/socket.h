// Sockets to servers: close-on-exec, without delay, and not for longer than a time limit.
//
// Not those of hiredis 0.14: another thread's exec inherits them, a server that goes raises SIGPIPE
// in a program that may not be ours, and their time limit is of each read, not of a reply.
#pragma once

#include <chrono>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "cluster/redis/url.h"

namespace berth {

// The message of an error is its reason alone ("Connection refused"): the caller knows the server.
Result<UniqueFd> connect_tcp(const RedisUrl::Address& address, std::chrono::milliseconds timeout);
Result<UniqueFd> connect_unix(const std::string& path, std::chrono::milliseconds timeout);

// As poll(2) for one descriptor, which signals do not end: true if there is something to do.
bool poll_until(std::chrono::steady_clock::time_point deadline, int fd, short events);

}  // namespace berth
