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
struct Answer {
  Reply reply;
  std::optional<std::string> error;  // its own words, if it said that something is wrong
};

// One thread at a time. Once something failed, all that follows fails in the same way: nobody knows
// any more which reply belongs to which command.
class RespChannel {
 public:
  using Words = std::vector<std::string>;

  // A connected socket, and what messages call the server.
  RespChannel(UniqueFd socket, std::string name);
  RespChannel(const RespChannel&) = delete;
  RespChannel& operator=(const RespChannel&) = delete;
  ~RespChannel();

  // Sends all commands, and waits for as many answers. The time limit is one of silence.
  Result<std::vector<Answer>> exchange(const std::vector<Words>& commands,
                                       std::chrono::milliseconds silence);

  Result<void> send(const Words& command, std::chrono::milliseconds silence);
  // Never waits.
  Result<std::optional<Answer>> receive();

  int fd() const;

 private:
  struct ReaderDeleter {
    void operator()(redisReader* reader) const { redisReaderFree(reader); }
  };
  // What hiredis's functions make of the bytes.
  struct Incoming {
    Reply root;
    std::optional<std::string> error;
    std::size_t replies = 0;  // also those within others
    bool too_large = false;
  };
  static redisReplyObjectFunctions* functions();

  Result<void> usable() const;
  tl::unexpected<Error> die(ErrorKind kind, const std::string& message);
  // Reads what has come; nothing is no error.
  Result<void> read();
  // The next answer out of what was read.
  Result<std::optional<Answer>> next();

  PrivateFd socket_;
  pid_t owner_;
  std::string name_;
  Incoming incoming_;
  std::unique_ptr<redisReader, ReaderDeleter> reader_;
  std::size_t unfinished_ = 0;  // bytes of the reply that is not whole yet
  std::size_t awaited_ = 0;     // replies to what send() sent
  std::optional<Error> death_;
};

}  // namespace berth
