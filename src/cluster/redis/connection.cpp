// Opening connections, checking the server, and turning replies into results; see connection.h.
#include "cluster/redis/connection.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <string_view>
#include <utility>

#include "cluster/redis/resp_channel.h"
#include "cluster/redis/sentinel.h"
#include "cluster/redis/server_error.h"
#include "cluster/redis/socket.h"

namespace berth {
namespace {

constexpr unsigned kMinMajorVersion = 6;

// HELLO replies with a list in which names and values alternate.
const Reply& find_value(const Reply& reply, std::string_view name) {
  static const Reply none;
  const auto& elements = reply.list();
  for (std::size_t i = 0; i + 1 < elements.size(); i += 2) {
    if (elements[i].text() == name) return elements[i + 1];
  }
  return none;
}

// Whether Berth can use the server that sent this reply to HELLO.
Result<void> check_server(const Reply& hello, const std::string& name) {
  const std::string& version = find_value(hello, "version").text();
  unsigned major = 0;
  const auto parsed = std::from_chars(version.data(), version.data() + version.size(), major);
  if (parsed.ec != std::errc{}) {
    return fail(ErrorKind::io,
                fmt::format("the server at {} is not Redis; check the host and the port", name));
  }
  if (major < kMinMajorVersion) {
    return fail(ErrorKind::io, fmt::format("{} is older than Redis {}; install a newer version",
                                           name, kMinMajorVersion));
  }
  if (find_value(hello, "mode").text() == "sentinel") {
    return fail(ErrorKind::io,
                fmt::format("{} is a Sentinel; use redis+sentinel://HOST:PORT/MASTER", name));
  }
  if (find_value(hello, "role").text() != "master") {
    return tl::make_unexpected(translate_error("READONLY", {name, {}, {}}));
  }
  return {};
}

}  // namespace

RedisConnection::RedisConnection(std::unique_ptr<RespChannel> channel, ServerIdentity identity)
    : channel_(std::move(channel)),
      identity_(std::make_unique<ServerIdentity>(std::move(identity))) {}
RedisConnection::RedisConnection(RedisConnection&&) noexcept = default;
RedisConnection& RedisConnection::operator=(RedisConnection&&) noexcept = default;
RedisConnection::~RedisConnection() = default;

Result<RedisConnection> RedisConnection::open(const RedisUrl& url) {
  if (!url.master.empty()) return open_by_sentinel(url);
  if (!url.socket.empty()) return open_server(url, nullptr, format_redacted_url(url));
  Result<RedisConnection> opened = fail(ErrorKind::usage, "the Redis URL does not name a server");
  for (const auto& address : url.addresses) {
    opened = open_server(url, &address, format_redacted_url(url));
    if (opened) break;
  }
  return opened;
}

Result<RedisConnection> RedisConnection::open_server(const RedisUrl& url,
                                                     const RedisUrl::Address* address,
                                                     const std::string& name) {
  auto socket = address == nullptr ? connect_unix(url.socket, kRedisConnectTimeout)
                                   : connect_tcp(*address, kRedisConnectTimeout);
  if (!socket) {
    return fail(
        socket.error().kind,
        fmt::format("{} cannot be reached: {}; check that the server is running, and that the "
                    "URL is correct",
                    name, socket.error().message));
  }
  RedisConnection connection(std::make_unique<RespChannel>(std::move(*socket), name),
                             ServerIdentity{name, url.user, url.prefix});
  TRY(connection.handshake(url));
  return connection;
}

Result<RedisConnection> RedisConnection::open_by_sentinel(const RedisUrl& url) {
  std::string messages;
  bool is_temporary = false;
  std::vector<std::string> tried;
  for (const auto& sentinel : url.addresses) {
    const auto master = query_master_address(url, sentinel);
    Error error;
    if (!master) {
      error = master.error();
    } else {
      const std::string where = format_address(*master);
      if (std::find(tried.begin(), tried.end(), where) != tried.end()) continue;
      tried.push_back(where);
      auto opened =
          open_server(url, &*master, fmt::format("{} (now {})", format_redacted_url(url), where));
      // This server is the master: by way of another Sentinel, a permanent error would be the same.
      if (opened || opened.error().kind != ErrorKind::unavailable) return opened;
      error = opened.error();
    }
    is_temporary = is_temporary || error.kind == ErrorKind::unavailable;
    messages += fmt::format("{}{}", messages.empty() ? "" : "; ", error.message);
  }
  return fail(is_temporary ? ErrorKind::unavailable : ErrorKind::io,
              fmt::format("the master cannot be reached through Sentinel: {}", messages));
}

// HELLO returns all that check_server() needs. Unlike INFO and ROLE, it needs no permission.
Result<void> RedisConnection::handshake(const RedisUrl& url) {
  RedisCommand hello{"HELLO", "2"};
  if (!url.user.empty() || !url.password.empty()) {
    hello.insert(hello.end(), {"AUTH", url.user.empty() ? "default" : url.user, url.password});
  }
  hello.insert(hello.end(), {"SETNAME", "berth"});
  std::vector<RedisCommand> commands{hello};
  if (url.database != 0) commands.push_back({"SELECT", std::to_string(url.database)});
  const auto answers = TRY(channel_->exchange(commands, kRedisCommandTimeout));
  const ReplyOrError& first = answers.front();
  if (first.error) return tl::make_unexpected(translate_login_error(*first.error, *identity_));
  TRY(check_server(first.reply, name()));
  id_ = find_value(first.reply, "id").integer().value_or(0);
  const ReplyOrError& last = answers.back();
  if (last.error) return tl::make_unexpected(translate_error(*last.error, *identity_));
  return {};
}

Result<ReplyOrError> RedisConnection::call_raw(const RedisCommand& command) {
  return channel_->exchange_one(command, kRedisCommandTimeout);
}

Result<Reply> RedisConnection::to_result(ReplyOrError answer) const {
  if (answer.error) return tl::make_unexpected(translate_error(*answer.error, *identity_));
  return std::move(answer.reply);
}

Result<Reply> RedisConnection::call(const RedisCommand& command) {
  return to_result(TRY(call_raw(command)));
}

Result<std::vector<Reply>> RedisConnection::pipeline(const std::vector<RedisCommand>& commands) {
  auto answers = TRY(channel_->exchange(commands, kRedisCommandTimeout));
  std::vector<Reply> replies;
  replies.reserve(answers.size());
  for (ReplyOrError& answer : answers) replies.push_back(TRY(to_result(std::move(answer))));
  return replies;
}

Result<void> RedisConnection::send(const RedisCommand& command) {
  return channel_->send(command, kRedisCommandTimeout);
}

Result<std::optional<Reply>> RedisConnection::receive() {
  auto answer = TRY(channel_->receive());
  if (!answer) return std::nullopt;
  return TRY(to_result(std::move(*answer)));
}

int RedisConnection::fd() const {
  return channel_->fd();
}

const std::string& RedisConnection::name() const {
  return identity_->server;
}

}  // namespace berth
