// A connection to a Redis server: sends commands and returns their replies.
//
// Callers branch on two kinds of errors. ErrorKind::unavailable: the server does not answer now,
// and may later (refused, reset, timed out, loading, a replica, out of memory, …). ErrorKind::io:
// the error is permanent (wrong password, no permission, not a Redis server, an error in a script,
// …). No message contains a user's password.
//
// An error that the server sent as a reply leaves the connection usable. Any other error closes the
// connection: each later call fails with the same error, and the caller opens a new connection.
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
constexpr std::chrono::milliseconds kRedisCommandTimeout(5'000);  // without a byte sent or received

class RespChannel;
struct ReplyOrError;
struct ServerIdentity;

// Movable. Not thread-safe: one thread at a time. A forked child cannot use the connection: there
// every call fails with ErrorKind::unavailable.
class RedisConnection {
 public:
  // Connects, through Sentinel if the URL names a master; authenticates; selects the database; and
  // checks that the server is a Redis of version 6 or later that accepts writes. One round trip
  // after the connection is made.
  static Result<RedisConnection> open(const RedisUrl& url);

  RedisConnection(RedisConnection&&) noexcept;
  RedisConnection& operator=(RedisConnection&&) noexcept;
  ~RedisConnection();

  // Sends one command and returns its reply. If the reply is a list (of EXEC, say) with an error in
  // it, that error is the result.
  Result<Reply> call(const RedisCommand& command);

  // Sends all commands in one round trip. The first error among the replies is the result; the
  // server has run the commands after it nevertheless.
  Result<std::vector<Reply>> pipeline(const std::vector<RedisCommand>& commands);

  // For a command that blocks (BLPOP): send() it, and call receive() when poll() reports that fd()
  // is readable. Until the reply was received, call() and pipeline() fail.
  Result<void> send(const RedisCommand& command);
  // Never blocks. nullopt: the reply is not complete yet.
  Result<std::optional<Reply>> receive();
  int fd() const;  // -1 once the connection is closed, and in a forked child

  // The server's number for this connection, as CLIENT UNBLOCK takes it.
  std::int64_t id() const { return id_; }

  // The server's name in messages: its URL without the login.
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
