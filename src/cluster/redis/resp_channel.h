// The Redis protocol (RESP) on a socket: writes commands and reads replies.
//
// hiredis parses the protocol. The socket and its timeouts are Berth's own; socket.h says why.
#pragma once

#include <chrono>
#include <hiredis/read.h>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/private_fd.h"
#include "base/result.h"
#include "cluster/redis/reply.h"

namespace berth {

// The server's answer to one command.
struct ReplyOrError {
  Reply reply;
  std::optional<std::string> error;  // the server's text, if the reply is or contains an error
};

// Not thread-safe: one thread at a time. A timeout or an error of the socket or the protocol closes
// the channel, and every later call fails with the same error: it is then unknown which reply
// belongs to which command. Every call fails in a forked child.
class RespChannel {
 public:
  // `socket` is connected. `name` is the server's name in messages.
  RespChannel(UniqueFd socket, std::string name);
  RespChannel(const RespChannel&) = delete;
  RespChannel& operator=(const RespChannel&) = delete;
  ~RespChannel();

  // Sends all commands and waits for their replies. `idle_timeout` limits the time in which no byte
  // is sent or received, not the whole exchange.
  Result<std::vector<ReplyOrError>> exchange(const std::vector<RedisCommand>& commands,
                                             std::chrono::milliseconds idle_timeout);
  Result<ReplyOrError> exchange_one(const RedisCommand& command,
                                    std::chrono::milliseconds idle_timeout);

  // Sends a command, whose reply receive() returns later. Until then exchange() fails.
  Result<void> send(const RedisCommand& command, std::chrono::milliseconds idle_timeout);
  // Never blocks. nullopt: no complete reply has arrived.
  Result<std::optional<ReplyOrError>> receive();

  int fd() const;  // -1 once the channel is closed, and in a forked child

 private:
  struct ReaderDeleter {
    void operator()(redisReader* reader) const { redisReaderFree(reader); }
  };
  // The reply that the callbacks of hiredis are building.
  struct PartialReply {
    Reply root;
    std::optional<std::string> error;
    std::size_t part_count = 0;  // elements of nested lists included
    bool too_large = false;
  };
  static redisReplyObjectFunctions* reply_functions();

  Result<void> check_usable() const;
  tl::unexpected<Error> close_with_error(ErrorKind kind, const std::string& message);
  tl::unexpected<Error> close_broken();  // with errno
  // Reads what has arrived. If nothing has, that is not an error.
  Result<void> read_available();
  // The next reply among the bytes read so far; nullopt if it is not complete.
  Result<std::optional<ReplyOrError>> parse_next();

  PrivateFd socket_;
  pid_t owner_;  // the process that made this object
  std::string name_;
  PartialReply partial_reply_;
  std::unique_ptr<redisReader, ReaderDeleter> reader_;
  std::size_t unparsed_bytes_ = 0;   // bytes of the reply that is not complete yet
  std::size_t pending_replies_ = 0;  // replies to commands of send()
  std::optional<Error> failure_;
};

}  // namespace berth
