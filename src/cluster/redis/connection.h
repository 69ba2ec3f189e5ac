// A connection to a Redis server: commands out, replies in.
//
// Two kinds of failure, which callers branch on. ErrorKind::unavailable: the server does not answer
// now, and may later (refused, reset, timed out, loading, a replica, out of memory, …).
// ErrorKind::io: it will not mend itself (wrong password, no permission, not a Redis, an error
// in a script, …). No message has a user's password in it.
//
// An error that the server replied leaves the connection as it was. After anything else the
// connection is dead: each later call gives the same error, and the caller opens a new one.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/redis/reply.h"
#include "cluster/redis/url.h"

namespace berth {

constexpr std::chrono::milliseconds kRedisConnectTimeout(2'000);  // for each address
constexpr std::chrono::milliseconds kRedisCommandTimeout(5'000);  // of silence

class RespChannel;
struct ReplyOrError;
struct ServerIdentity;

// Movable. One thread at a time. A fork of this process does not get the connection: its calls fail
// there as `away`.
class RedisConnection {
 public:
  // Connects, by way of Sentinel if the URL says so; authenticates; selects the database; and makes
  // sure that this is a Redis of version 6 or later that can be written to. One round trip.
  static Result<RedisConnection> open(const RedisUrl& url);

  RedisConnection(RedisConnection&&) noexcept;
  RedisConnection& operator=(RedisConnection&&) noexcept;
  ~RedisConnection();

  // One command, its reply. An error within a list (of EXEC, say) is an error of the whole.
  Result<Reply> call(const RedisCommand& command);

  // All commands in one round trip. The first error among the replies is the result; the commands
  // behind it were carried out nevertheless.
  Result<std::vector<Reply>> pipeline(const std::vector<RedisCommand>& commands);

  // For a command that blocks (BLPOP): send now, and receive when poll() says that fd() is
  // readable. Until its reply was received, call() and pipeline() fail.
  Result<void> send(const RedisCommand& command);
  // Never blocks. Nothing yet, if the reply is not whole.
  Result<std::optional<Reply>> receive();
  int fd() const;

  // What CLIENT UNBLOCK wants.
  std::int64_t id() const { return id_; }

  // For messages.
  const std::string& name() const;

 private:
  friend class Script;
  RedisConnection(std::unique_ptr<RespChannel> channel, ServerIdentity identity);
  static Result<RedisConnection> open_server(const RedisUrl& url, const RedisUrl::Address* address,
                                             const std::string& name);
  static Result<RedisConnection> open_by_sentinel(const RedisUrl& url);
  Result<void> handshake(const RedisUrl& url);
  Result<ReplyOrError> call_raw(const RedisCommand& command);
  Result<Reply> to_result(ReplyOrError answer) const;

  std::unique_ptr<RespChannel> channel_;
  std::unique_ptr<ServerIdentity> identity_;
  std::int64_t id_ = 0;
};

}  // namespace berth
