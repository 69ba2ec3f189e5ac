// The query to a Sentinel, with a login only if it requires one; see sentinel.h.
#include "cluster/redis/sentinel.h"

#include <fmt/format.h>
#include <utility>

#include "base/text.h"
#include "cluster/redis/connection.h"
#include "cluster/redis/resp_channel.h"
#include "cluster/redis/server_error.h"
#include "cluster/redis/socket.h"

namespace berth {
namespace {

// As short as the connection timeout, since the URL may name other Sentinels.
constexpr std::chrono::milliseconds kSentinelTimeout = kRedisConnectTimeout;

Result<void> authenticate(RespChannel& channel, const RedisUrl& url,
                          const ServerIdentity& identity) {
  RedisCommand command{"AUTH"};
  if (!url.user.empty()) command.push_back(url.user);
  command.push_back(url.password);
  const auto answer = TRY(channel.exchange_one(command, kSentinelTimeout));
  if (answer.error) return tl::make_unexpected(translate_login_error(*answer.error, identity));
  return {};
}

}  // namespace

std::optional<RedisUrl::Address> parse_master_address(const Reply& reply) {
  const auto& elements = reply.list();
  if (elements.size() != 2) return std::nullopt;
  const std::string& host = elements[0].text();
  const auto port = parse_integer<std::uint16_t>(elements[1].text());
  if (host.empty() || !port || *port == 0) return std::nullopt;
  return RedisUrl::Address{host, *port};
}

Result<RedisUrl::Address> query_master_address(const RedisUrl& url,
                                               const RedisUrl::Address& sentinel) {
  const ServerIdentity identity{fmt::format("the Sentinel at {}", format_address(sentinel)),
                                url.user, url.prefix};
  auto socket = connect_tcp(sentinel, kRedisConnectTimeout);
  if (!socket) {
    return fail(socket.error().kind,
                fmt::format("{} cannot be reached: {}", identity.server, socket.error().message));
  }
  RespChannel channel(std::move(*socket), identity.server);
  const RedisCommand master_query{"SENTINEL", "get-master-addr-by-name", url.master};
  auto answer = TRY(channel.exchange_one(master_query, kSentinelTimeout));
  // The password is for the Redis server: a Sentinel gets it only if it requires a login.
  if (answer.error && answer.error->starts_with("NOAUTH") && !url.password.empty()) {
    TRY(authenticate(channel, url, identity));
    answer = TRY(channel.exchange_one(master_query, kSentinelTimeout));
  }
  if (answer.error && answer.error->starts_with("ERR unknown command")) {
    return fail(
        ErrorKind::io,
        fmt::format("the server at {} is not a Sentinel; write redis:// for a Redis server, or "
                    "the port of a Sentinel",
                    format_address(sentinel)));
  }
  if (answer.error) return tl::make_unexpected(translate_error(*answer.error, identity));
  if (answer.reply.is_nil()) {
    return fail(ErrorKind::io, fmt::format("{} does not monitor a master named {}; see "
                                           "'redis-cli -p {} SENTINEL masters'",
                                           identity.server, url.master, sentinel.port));
  }
  auto master = parse_master_address(answer.reply);
  if (!master) {
    return fail(ErrorKind::io,
                fmt::format("the server at {} is not a Sentinel: its reply is not a host and a "
                            "port; check the port in the URL",
                            format_address(sentinel)));
  }
  return std::move(*master);
}

}  // namespace berth
