// A server that is asked now and then, by questions that may be repeated: connects when it is first
// asked, asks again where a connection was cut, and leaves its connection to the next session of
// this process.
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

// One thread at a time. A fork gets connections of its own. Errors as of RedisConnection.
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

  // Which run of a server is at the other end: another one after each start, and on each server.
  // Empty where this user may not ask. It may be another one after each question.
  Result<std::string> run_id();

  // Lets go of the connection, as a fork must before it closes what it has inherited.
  void disconnect();

  // Somebody who has a connection of his own was not answered.
  void note_unavailable() const;
  // Did it not answer a moment ago, whoever of this process asked? Then what can be left undone
  // need not wait for it once more.
  bool was_recently_unavailable() const;

 private:
  template <class Operation>
  auto run_with_retry(Operation operation) -> decltype(operation(std::declval<RedisConnection&>()));

  RedisUrl url_;
  std::optional<RedisConnection> connection_;
  std::optional<std::string> run_id_;  // of what it is connected to
};

}  // namespace berth
