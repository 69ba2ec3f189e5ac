// Commands and answers as bytes on a socket: the protocol, and not what is said in it.
//
// hiredis reads the protocol; the socket and its time limits are ours (see socket.h).
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

// What a server replied to one command.
struct ReplyOrError {
  Reply reply;
  std::optional<std::string> error;  // its own words, if it said that something is wrong
};

// One thread at a time. Once something failed, all that follows fails in the same way: nobody knows
// any more which reply belongs to which command.
class RespChannel {
 public:
  // A connected socket, and what messages call the server.
  RespChannel(UniqueFd socket, std::string name);
  RespChannel(const RespChannel&) = delete;
  RespChannel& operator=(const RespChannel&) = delete;
  ~RespChannel();

  // Sends all commands, and waits for as many answers. The time limit is one of silence.
  Result<std::vector<ReplyOrError>> exchange(const std::vector<RedisCommand>& commands,
                                             std::chrono::milliseconds idle_timeout);

  Result<void> send(const RedisCommand& command, std::chrono::milliseconds idle_timeout);
  // Never waits.
  Result<std::optional<ReplyOrError>> receive();

  int fd() const;

 private:
  struct ReaderDeleter {
    void operator()(redisReader* reader) const { redisReaderFree(reader); }
  };
  // What hiredis's functions make of the bytes.
  struct PartialReply {
    Reply root;
    std::optional<std::string> error;
    std::size_t part_count = 0;  // also those within others
    bool too_large = false;
  };
  static redisReplyObjectFunctions* reply_functions();

  Result<void> check_usable() const;
  tl::unexpected<Error> close_with_error(ErrorKind kind, const std::string& message);
  // Reads what has come; nothing is no error.
  Result<void> read_available();
  // The next answer out of what was read.
  Result<std::optional<ReplyOrError>> parse_next();

  PrivateFd socket_;
  pid_t owner_;
  std::string name_;
  PartialReply partial_reply_;
  std::unique_ptr<redisReader, ReaderDeleter> reader_;
  std::size_t unparsed_bytes_ = 0;   // bytes of the reply that is not whole yet
  std::size_t pending_replies_ = 0;  // replies to what send() sent
  std::optional<Error> failure_;
};

}  // namespace berth
