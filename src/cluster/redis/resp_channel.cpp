// Writing commands and reading replies, with timeouts; see resp_channel.h.
#include "cluster/redis/resp_channel.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <iterator>
#include <poll.h>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "base/quantity.h"
#include "cluster/redis/socket.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kReadSize = std::size_t{64} << 10;

// Limits the memory that a reply takes, besides kMaxRedisReplySize: an element may take ten times
// as many bytes in memory as on the wire.
constexpr std::size_t kMaxReplyParts = std::size_t{1} << 20;
// Of lists in lists. hiredis 0.14 has this limit itself; without a limit the destructor of Reply
// could use up the stack.
constexpr int kMaxReplyDepth = 8;

void append_command(std::string& out, const RedisCommand& command) {
  fmt::format_to(std::back_inserter(out), "*{}\r\n", command.size());
  for (const std::string& argument : command) {
    fmt::format_to(std::back_inserter(out), "${}\r\n", argument.size());
    out += argument;
    out += "\r\n";
  }
}

// Redis does not reply to a command without words: the caller would wait until the timeout.
tl::unexpected<Error> empty_command_error() {
  return fail(ErrorKind::io, "a command for Redis is empty; this is a bug in berth");
}

}  // namespace

redisReplyObjectFunctions* RespChannel::reply_functions() {
  // hiredis completes an element before it begins the next one. So when emplace_back() moves the
  // elements of a list, no pointer to any of them is in use.
  static constexpr auto allocate_reply = [](const redisReadTask* task) -> Reply* {
    auto& partial = *static_cast<PartialReply*>(task->privdata);
    if (++partial.part_count > kMaxReplyParts) {
      partial.too_large = true;
      return nullptr;
    }
    int depth = 0;
    for (const auto* outer = task->parent; outer != nullptr; outer = outer->parent) {
      if (++depth > kMaxReplyDepth) return nullptr;
    }
    if (task->parent == nullptr) return &partial.root;
    return &std::get<Reply::List>(static_cast<Reply*>(task->parent->obj)->value).emplace_back();
  };
  static constexpr auto create_string = [](const redisReadTask* task, char* text,
                                           std::size_t size) -> void* {
    Reply* reply = allocate_reply(task);
    if (reply == nullptr) return nullptr;
    auto& error = static_cast<PartialReply*>(task->privdata)->error;
    if (task->type == REDIS_REPLY_ERROR && !error) error.emplace(text, size);
    reply->value.emplace<std::string>(text, size);
    return reply;
  };
  static constexpr auto create_integer = [](const redisReadTask* task, long long number) -> void* {
    Reply* reply = allocate_reply(task);
    if (reply != nullptr) reply->value = std::int64_t{number};
    return reply;
  };
  // A template, because the members depend on the version of hiredis: 1.0 added RESP3, and the
  // count of an array was an int before. Berth never asks for RESP3, but any server can send it.
  static constexpr auto make_functions = [](auto functions) {
    functions.createString = create_string;
    functions.createArray = [](const redisReadTask* task, auto /*count*/) -> void* {
      Reply* reply = allocate_reply(task);
      if (reply != nullptr) reply->value.template emplace<Reply::List>();
      return reply;
    };
    functions.createInteger = create_integer;
    functions.createNil = [](const redisReadTask* task) -> void* { return allocate_reply(task); };
    functions.freeObject = [](void*) {};  // partial_reply_ owns every part
    if constexpr (requires { functions.createDouble; }) {
      functions.createDouble = [](const redisReadTask* task, double, char* text, std::size_t size) {
        return create_string(task, text, size);
      };
      functions.createBool = [](const redisReadTask* task, int value) {
        return create_integer(task, value);
      };
    }
    return functions;
  };
  static redisReplyObjectFunctions functions = make_functions(redisReplyObjectFunctions{});
  return &functions;
}

RespChannel::RespChannel(UniqueFd socket, std::string name)
    : socket_(std::move(socket)),
      owner_(::getpid()),
      name_(std::move(name)),
      reader_(redisReaderCreateWithFunctions(reply_functions())) {
  reader_->privdata = &partial_reply_;
}

RespChannel::~RespChannel() {
  // In a forked child the descriptor is closed already, and its number may belong to another file.
  if (::getpid() != owner_) std::move(socket_).share().release();
}

int RespChannel::fd() const {
  return ::getpid() == owner_ ? socket_.get() : -1;
}

Result<void> RespChannel::check_usable() const {
  if (failure_) return tl::make_unexpected(*failure_);
  if (::getpid() != owner_) {
    return fail(ErrorKind::unavailable,
                fmt::format("the connection to {} belongs to the parent process; open a new "
                            "connection in this process",
                            name_));
  }
  return {};
}

tl::unexpected<Error> RespChannel::close_with_error(ErrorKind kind, const std::string& message) {
  failure_ = Error{kind, message};
  socket_.reset();  // so that the server does not keep serving a connection that is not read
  return tl::make_unexpected(*failure_);
}

tl::unexpected<Error> RespChannel::close_broken() {
  return close_with_error(ErrorKind::unavailable,
                          fmt::format("the connection to {} was lost: {}; check that the "
                                      "server is running",
                                      name_, std::strerror(errno)));
}

Result<void> RespChannel::read_available() {
  std::array<char, kReadSize> chunk;
  for (;;) {
    const ssize_t size = ::recv(socket_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return {};
    if (size < 0) return close_broken();
    if (size == 0) {
      return close_with_error(
          ErrorKind::unavailable,
          fmt::format("{} closed the connection; check that the server is running", name_));
    }
    unparsed_bytes_ += static_cast<std::size_t>(size);
    redisReaderFeed(reader_.get(), chunk.data(), static_cast<std::size_t>(size));
    return {};
  }
}

Result<std::optional<ReplyOrError>> RespChannel::parse_next() {
  void* parsed = nullptr;
  const int status = redisReaderGetReply(reader_.get(), &parsed);
  if (partial_reply_.too_large || (parsed == nullptr && unparsed_bytes_ > kMaxRedisReplySize)) {
    return close_with_error(
        ErrorKind::io,
        fmt::format("a reply from {} is larger than {} or has more than {} elements, so it is not "
                    "data of berth; check which other program uses this database",
                    name_, format_size({kMaxRedisReplySize}), kMaxReplyParts));
  }
  if (status != REDIS_OK) {
    // The message of hiredis is left out: it quotes bytes that may be an echo of a password.
    return close_with_error(
        ErrorKind::io,
        fmt::format("the server at {} does not use the Redis protocol (or requires TLS); "
                    "check the host and the port",
                    name_));
  }
  if (parsed == nullptr) return std::nullopt;
  unparsed_bytes_ = reader_->len - reader_->pos;
  PartialReply finished = std::exchange(partial_reply_, {});
  return ReplyOrError{std::move(finished.root), std::move(finished.error)};
}

Result<std::vector<ReplyOrError>> RespChannel::exchange(const std::vector<RedisCommand>& commands,
                                                        std::chrono::milliseconds idle_timeout) {
  TRY(check_usable());
  if (pending_replies_ > 0) {
    return fail(ErrorKind::io,
                fmt::format("a reply from {} is still pending; this is a bug in berth", name_));
  }
  std::string out;
  for (const RedisCommand& command : commands) {
    if (command.empty()) return empty_command_error();
    append_command(out, command);
  }
  std::string_view unsent = out;
  std::vector<ReplyOrError> answers;
  answers.reserve(commands.size());
  auto deadline = Clock::now() + idle_timeout;
  // Reads also while it writes: a server whose replies are not read stops reading commands.
  while (answers.size() < commands.size()) {
    if (!unsent.empty()) {
      const ssize_t size =
          ::send(socket_.get(), unsent.data(), unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (size > 0) unsent.remove_prefix(static_cast<std::size_t>(size));
      if (size > 0) deadline = Clock::now() + idle_timeout;
      // A server that refuses the connection sends the reason before it closes: read on.
      if (size < 0 && errno != EAGAIN && errno != EINTR) unsent = {};
    }
    const auto events = static_cast<short>(unsent.empty() ? POLLIN : POLLIN | POLLOUT);
    if (!poll_until(deadline, socket_.get(), events)) {
      return close_with_error(ErrorKind::unavailable,
                              fmt::format("{} did not answer within {}; check that the "
                                          "server is running and not overloaded",
                                          name_, format_duration(idle_timeout)));
    }
    const std::size_t before = unparsed_bytes_;
    TRY(read_available());
    if (unparsed_bytes_ != before) deadline = Clock::now() + idle_timeout;
    while (answers.size() < commands.size()) {
      auto answer = TRY(parse_next());
      if (!answer) break;
      answers.push_back(std::move(*answer));
    }
  }
  return answers;
}

Result<ReplyOrError> RespChannel::exchange_one(const RedisCommand& command,
                                               std::chrono::milliseconds idle_timeout) {
  auto answers = TRY(exchange({command}, idle_timeout));
  return std::move(answers.front());
}

Result<void> RespChannel::send(const RedisCommand& command,
                               std::chrono::milliseconds idle_timeout) {
  TRY(check_usable());
  if (command.empty()) return empty_command_error();
  std::string out;
  append_command(out, command);
  std::string_view unsent = out;
  auto deadline = Clock::now() + idle_timeout;
  while (!unsent.empty()) {
    const ssize_t size =
        ::send(socket_.get(), unsent.data(), unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size > 0) {
      unsent.remove_prefix(static_cast<std::size_t>(size));
      deadline = Clock::now() + idle_timeout;
    } else if (errno != EAGAIN && errno != EINTR) {
      return close_broken();
    } else if (!poll_until(deadline, socket_.get(), POLLOUT)) {
      return close_with_error(ErrorKind::unavailable,
                              fmt::format("{} did not accept a command within {}; check that "
                                          "the server is not overloaded",
                                          name_, format_duration(idle_timeout)));
    }
  }
  ++pending_replies_;
  return {};
}

Result<std::optional<ReplyOrError>> RespChannel::receive() {
  TRY(check_usable());
  for (;;) {
    auto answer = TRY(parse_next());
    if (answer) {
      if (pending_replies_ > 0) --pending_replies_;
      return answer;
    }
    const std::size_t before = unparsed_bytes_;
    TRY(read_available());
    if (unparsed_bytes_ == before) return std::nullopt;
  }
}

}  // namespace berth
