// A Redis server that is used now and then, with commands that may run twice.
//
// A session connects at its first command. If an open connection turns out to have been cut, the
// session opens a new one and sends the command again. The destructor leaves the connection to the
// next session of this process.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/redis/connection.h"
#include "cluster/redis/reply.h"
#include "cluster/redis/script.h"
#include "cluster/redis/url.h"

namespace berth {

// Not thread-safe: one thread at a time. A forked child opens connections of its own. Errors are
// those of RedisConnection.
class RedisSession {
 public:
  explicit RedisSession(RedisUrl url);
  RedisSession(const RedisSession&) = delete;
  RedisSession& operator=(const RedisSession&) = delete;
  ~RedisSession();

  Result<Reply> call(const RedisCommand& command);
  Result<std::vector<Reply>> pipeline(const std::vector<RedisCommand>& commands);
  Result<Reply> run(const Script& script, const std::vector<std::string>& keys,
                    const std::vector<std::string>& arguments);

  // The server's run id, which differs between servers and changes when a server is restarted.
  // Empty if this user may not call INFO. Any command may have to reconnect, so the id may be
  // another one afterwards.
  Result<std::string> run_id();

  // Closes the connection. A forked child must do so before it closes inherited descriptors.
  void disconnect();

  // Records that the server did not answer on a connection that is not this session's.
  void note_unavailable() const;
  // Whether an attempt of this process to use the server failed with ErrorKind::unavailable in the
  // last 10 s, and no command has succeeded since. Then work that may be skipped need not wait for
  // another timeout. Permanent errors do not count: they come without a timeout.
  bool was_recently_unavailable() const;

 private:
  template <class Operation>
  auto run_with_retry(Operation operation) -> decltype(operation(std::declval<RedisConnection&>()));

  RedisUrl url_;
  std::optional<RedisConnection> connection_;
  std::optional<std::string> run_id_;  // of the server that connection_ leads to
};

}  // namespace berth
