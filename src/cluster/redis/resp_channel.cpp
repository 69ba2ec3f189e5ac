// Writing commands and reading replies; see link.h.
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

constexpr std::size_t kChunk = std::size_t{64} << 10;

// A reply takes ten times the bytes in memory that it may take on the way.
constexpr std::size_t kMostReplies = std::size_t{1} << 20;

void append(std::string& out, const RespChannel::Words& words) {
  fmt::format_to(std::back_inserter(out), "*{}\r\n", words.size());
  for (const std::string& word : words) {
    fmt::format_to(std::back_inserter(out), "${}\r\n", word.size());
    out += word;
    out += "\r\n";
  }
}

// Redis would not reply to it.
tl::unexpected<Error> empty_command_error() {
  return fail(ErrorKind::io,
              "a command of berth's for Redis has no words; this is a mistake in berth");
}

}  // namespace

redisReplyObjectFunctions* RespChannel::functions() {
  // A list grows only when its last element is whole, so nobody has a pointer to one that moves.
  static constexpr auto place = [](const redisReadTask* task) -> Reply* {
    auto& incoming = *static_cast<Incoming*>(task->privdata);
    if (++incoming.replies > kMostReplies) {
      incoming.too_large = true;
      return nullptr;
    }
    if (task->parent == nullptr) return &incoming.root;
    return &std::get<Reply::List>(static_cast<Reply*>(task->parent->obj)->value).emplace_back();
  };
  static redisReplyObjectFunctions all{
      [](const redisReadTask* task, char* text, std::size_t size) -> void* {
        Reply* reply = place(task);
        if (reply == nullptr) return nullptr;
        auto& error = static_cast<Incoming*>(task->privdata)->error;
        if (task->type == REDIS_REPLY_ERROR && !error) error.emplace(text, size);
        reply->value.emplace<std::string>(text, size);
        return reply;
      },
      [](const redisReadTask* task, int) -> void* {
        Reply* reply = place(task);
        if (reply != nullptr) reply->value.emplace<Reply::List>();
        return reply;
      },
      [](const redisReadTask* task, long long number) -> void* {
        Reply* reply = place(task);
        if (reply != nullptr) reply->value = std::int64_t{number};
        return reply;
      },
      [](const redisReadTask* task) -> void* { return place(task); },
      [](void*) {},  // all of it is ours
  };
  return &all;
}

RespChannel::RespChannel(UniqueFd socket, std::string name)
    : socket_(std::move(socket)),
      owner_(::getpid()),
      name_(std::move(name)),
      reader_(redisReaderCreateWithFunctions(functions())) {
  reader_->privdata = &incoming_;
}

RespChannel::~RespChannel() {
  // In a fork the number is closed already, and may be another file's.
  if (::getpid() != owner_) std::move(socket_).shared().release();
}

int RespChannel::fd() const {
  return ::getpid() == owner_ ? socket_.get() : -1;
}

Result<void> RespChannel::usable() const {
  if (death_) return tl::make_unexpected(*death_);
  if (::getpid() != owner_) {
    return fail(ErrorKind::unavailable,
                fmt::format("the connection to {} belongs to the process that this one was forked "
                            "from; open another",
                            name_));
  }
  return {};
}

tl::unexpected<Error> RespChannel::die(ErrorKind kind, const std::string& message) {
  death_ = Error{kind, message};
  socket_.reset();  // the server should not serve whom nobody hears
  return tl::make_unexpected(*death_);
}

Result<void> RespChannel::read() {
  std::array<char, kChunk> chunk;
  for (;;) {
    const ssize_t size = ::recv(socket_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return {};
    if (size < 0) {
      return die(ErrorKind::unavailable, fmt::format("the connection to {} broke: {}; see whether the "
                                              "server runs",
                                              name_, std::strerror(errno)));
    }
    if (size == 0) {
      return die(ErrorKind::unavailable,
                 fmt::format("{} closed the connection; see whether the server runs", name_));
    }
    unfinished_ += static_cast<std::size_t>(size);
    redisReaderFeed(reader_.get(), chunk.data(), static_cast<std::size_t>(size));
    return {};
  }
}

Result<std::optional<Answer>> RespChannel::next() {
  void* whole = nullptr;
  const int state = redisReaderGetReply(reader_.get(), &whole);
  if (incoming_.too_large || (whole == nullptr && unfinished_ > kLargestRedisReply)) {
    return die(ErrorKind::io,
               fmt::format("a reply of {} is larger than {}, or of more than {} parts, which "
                           "nothing of berth's is; see what else uses this database",
                           name_, format_size({kLargestRedisReply}), kMostReplies));
  }
  if (state != REDIS_OK) {
    // Without hiredis's words: they quote what may be an echo of a password.
    return die(ErrorKind::io,
               fmt::format("what answers at {} does not speak Redis's protocol (or wants TLS); "
                           "check the host and the port",
                           name_));
  }
  if (whole == nullptr) return std::nullopt;
  unfinished_ = reader_->len - reader_->pos;
  Incoming done = std::exchange(incoming_, {});
  return Answer{std::move(done.root), std::move(done.error)};
}

Result<std::vector<Answer>> RespChannel::exchange(const std::vector<Words>& commands,
                                           std::chrono::milliseconds silence) {
  if (auto good = usable(); !good) return tl::make_unexpected(good.error());
  if (awaited_ > 0) {
    return fail(ErrorKind::io,
                fmt::format("a reply of {} is still awaited; this is a mistake in berth", name_));
  }
  std::string out;
  for (const Words& words : commands) {
    if (words.empty()) return empty_command_error();
    append(out, words);
  }
  std::string_view unsent = out;
  std::vector<Answer> answers;
  answers.reserve(commands.size());
  auto limit = Clock::now() + silence;
  // Reads also while it writes: a server whose replies nobody reads stops reading commands.
  while (answers.size() < commands.size()) {
    if (!unsent.empty()) {
      const ssize_t size =
          ::send(socket_.get(), unsent.data(), unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (size > 0) unsent.remove_prefix(static_cast<std::size_t>(size));
      if (size > 0) limit = Clock::now() + silence;
      // A server that turns us away says why before it closes: read on.
      if (size < 0 && errno != EAGAIN && errno != EINTR) unsent = {};
    }
    const auto events = static_cast<short>(unsent.empty() ? POLLIN : POLLIN | POLLOUT);
    if (!wait_until(limit, socket_.get(), events)) {
      return die(ErrorKind::unavailable, fmt::format("{} does not answer within {}; see whether the "
                                              "server runs, and what it is busy with",
                                              name_, format_duration(silence)));
    }
    const std::size_t before = unfinished_;
    if (auto good = read(); !good) return tl::make_unexpected(good.error());
    if (unfinished_ != before) limit = Clock::now() + silence;
    while (answers.size() < commands.size()) {
      auto answer = next();
      if (!answer) return tl::make_unexpected(answer.error());
      if (!*answer) break;
      answers.push_back(std::move(**answer));
    }
  }
  return answers;
}

Result<void> RespChannel::send(const Words& command, std::chrono::milliseconds silence) {
  if (auto good = usable(); !good) return good;
  if (command.empty()) return empty_command_error();
  std::string out;
  append(out, command);
  std::string_view unsent = out;
  auto limit = Clock::now() + silence;
  while (!unsent.empty()) {
    const ssize_t size =
        ::send(socket_.get(), unsent.data(), unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size > 0) {
      unsent.remove_prefix(static_cast<std::size_t>(size));
      limit = Clock::now() + silence;
    } else if (errno != EAGAIN && errno != EINTR) {
      return die(ErrorKind::unavailable, fmt::format("the connection to {} broke: {}; see whether the "
                                              "server runs",
                                              name_, std::strerror(errno)));
    } else if (!wait_until(limit, socket_.get(), POLLOUT)) {
      return die(ErrorKind::unavailable, fmt::format("{} takes no command within {}; see what it is busy "
                                              "with",
                                              name_, format_duration(silence)));
    }
  }
  ++awaited_;
  return {};
}

Result<std::optional<Answer>> RespChannel::receive() {
  if (auto good = usable(); !good) return tl::make_unexpected(good.error());
  for (;;) {
    auto answer = next();
    if (!answer) return answer;
    if (*answer) {
      if (awaited_ > 0) --awaited_;
      return answer;
    }
    const std::size_t before = unfinished_;
    if (auto good = read(); !good) return tl::make_unexpected(good.error());
    if (unfinished_ == before) return std::nullopt;
  }
}

}  // namespace berth
