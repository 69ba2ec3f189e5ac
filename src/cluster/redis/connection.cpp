// Opening connections and judging what is said on them; see connection.h.
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

constexpr unsigned kOldestVersion = 6;

// HELLO replies with names and values in turn.
const Reply& value_of(const Reply& reply, std::string_view name) {
  static const Reply none;
  const auto& parts = reply.list();
  for (std::size_t i = 0; i + 1 < parts.size(); i += 2) {
    if (parts[i].text() == name) return parts[i + 1];
  }
  return none;
}

// What HELLO told of the server, judged.
Result<void> check_server(const Reply& hello, const std::string& name) {
  const std::string& version = value_of(hello, "version").text();
  unsigned major = 0;
  const auto parsed = std::from_chars(version.data(), version.data() + version.size(), major);
  if (parsed.ec != std::errc{}) {
    return fail(ErrorKind::io,
                fmt::format("what answers at {} is no Redis; check the host and the port", name));
  }
  if (major < kOldestVersion) {
    return fail(ErrorKind::io, fmt::format("{} is older than Redis {}; install a newer one",
                                                name, kOldestVersion));
  }
  if (value_of(hello, "mode").text() == "sentinel") {
    return fail(ErrorKind::io,
                fmt::format("{} is a Sentinel; write redis+sentinel://HOST:PORT/MASTER", name));
  }
  if (value_of(hello, "role").text() != "master") {
    return tl::make_unexpected(translate_error("READONLY", {name, {}, {}}));
  }
  return {};
}

}  // namespace

RedisConnection::RedisConnection(std::unique_ptr<RespChannel> link, ServerIdentity party)
    : link_(std::move(link)), party_(std::make_unique<ServerIdentity>(std::move(party))) {}
RedisConnection::RedisConnection(RedisConnection&&) noexcept = default;
RedisConnection& RedisConnection::operator=(RedisConnection&&) noexcept = default;
RedisConnection::~RedisConnection() = default;

Result<RedisConnection> RedisConnection::open(const RedisUrl& url) {
  if (!url.master.empty()) return open_by_sentinel(url);
  if (!url.socket.empty()) return open_server(url, nullptr, shown(url));
  Result<RedisConnection> opened = fail(ErrorKind::usage, "the Redis URL names no server");
  for (const auto& address : url.addresses) {
    opened = open_server(url, &address, shown(url));
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
        fmt::format("{} cannot be reached: {}; see whether the server runs, and whether the "
                    "URL is right",
                    name, socket.error().message));
  }
  RedisConnection made(std::make_unique<RespChannel>(std::move(*socket), name),
                       ServerIdentity{name, url.user, url.prefix});
  if (auto good = made.handshake(url); !good) return tl::make_unexpected(good.error());
  return made;
}

Result<RedisConnection> RedisConnection::open_by_sentinel(const RedisUrl& url) {
  std::string problems;
  bool may_mend = false;
  std::vector<std::string> tried;
  for (const auto& sentinel : url.addresses) {
    const auto master = ask_sentinel(url, sentinel);
    Error error;
    if (!master) {
      error = master.error();
    } else {
      const std::string where = shown(*master);
      if (std::find(tried.begin(), tried.end(), where) != tried.end()) continue;
      tried.push_back(where);
      auto opened = open_server(url, &*master, fmt::format("{} (now {})", shown(url), where));
      // That server is the master, and will say the same to who comes by another Sentinel.
      if (opened || opened.error().kind != ErrorKind::unavailable) return opened;
      error = opened.error();
    }
    may_mend = may_mend || error.kind == ErrorKind::unavailable;
    problems += fmt::format("{}{}", problems.empty() ? "" : "; ", error.message);
  }
  return fail(may_mend ? ErrorKind::unavailable : ErrorKind::io,
              fmt::format("no Sentinel leads to a master: {}", problems));
}

// HELLO tells all that must be known, and needs no permission, unlike INFO and ROLE.
Result<void> RedisConnection::handshake(const RedisUrl& url) {
  Words hello{"HELLO", "2"};
  if (!url.user.empty() || !url.password.empty()) {
    hello.insert(hello.end(), {"AUTH", url.user.empty() ? "default" : url.user, url.password});
  }
  hello.insert(hello.end(), {"SETNAME", "berth"});
  std::vector<Words> commands{hello};
  if (url.database != 0) commands.push_back({"SELECT", std::to_string(url.database)});
  const auto answers = link_->exchange(commands, kRedisCommandTimeout);
  if (!answers) return tl::make_unexpected(answers.error());
  const Answer& first = answers->front();
  if (first.error) return tl::make_unexpected(meaning_of_refusal(*first.error, *party_));
  if (auto good = check_server(first.reply, name()); !good) return good;
  id_ = value_of(first.reply, "id").integer().value_or(0);
  const Answer& last = answers->back();
  if (last.error) return tl::make_unexpected(translate_error(*last.error, *party_));
  return {};
}

Result<Answer> RedisConnection::ask(const Words& words) {
  auto answers = link_->exchange({words}, kRedisCommandTimeout);
  if (!answers) return tl::make_unexpected(answers.error());
  return Result<Answer>(std::move(answers->front()));
}

Result<Reply> RedisConnection::to_result(Answer answer) const {
  if (answer.error) return tl::make_unexpected(translate_error(*answer.error, *party_));
  return std::move(answer.reply);
}

Result<Reply> RedisConnection::call(const Words& words) {
  auto answer = ask(words);
  if (!answer) return tl::make_unexpected(answer.error());
  return to_result(std::move(*answer));
}

Result<std::vector<Reply>> RedisConnection::pipeline(const std::vector<Words>& commands) {
  auto answers = link_->exchange(commands, kRedisCommandTimeout);
  if (!answers) return tl::make_unexpected(answers.error());
  std::vector<Reply> replies;
  replies.reserve(answers->size());
  for (Answer& answer : *answers) {
    auto reply = to_result(std::move(answer));
    if (!reply) return tl::make_unexpected(reply.error());
    replies.push_back(std::move(*reply));
  }
  return replies;
}

Result<void> RedisConnection::send(const Words& words) {
  return link_->send(words, kRedisCommandTimeout);
}

Result<std::optional<Reply>> RedisConnection::receive() {
  auto answer = link_->receive();
  if (!answer) return tl::make_unexpected(answer.error());
  if (!*answer) return std::nullopt;
  auto reply = to_result(std::move(**answer));
  if (!reply) return tl::make_unexpected(reply.error());
  return std::move(*reply);
}

int RedisConnection::fd() const {
  return link_->fd();
}

const std::string& RedisConnection::name() const {
  return party_->server;
}

}  // namespace berth
