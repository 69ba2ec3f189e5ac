// The query to a Sentinel, with a login only if it requires one; see sentinel.h.
#include "cluster/redis/sentinel.h"

#include <charconv>
#include <fmt/format.h>

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
    return fail(ErrorKind::io,
                fmt::format("what answers at {} is no Sentinel; write redis:// for a server, or "
                            "Sentinel's port",
                            format_address(sentinel)));
  }
  if (answer.error) return tl::make_unexpected(translate_error(*answer.error, identity));
  if (answer.reply.is_nil()) {
    return fail(ErrorKind::io, fmt::format("{} watches no master called {}; see redis-cli -p {} "
                                           "SENTINEL masters",
                                           identity.server, url.master, sentinel.port));
  }
  const auto& elements = answer.reply.list();
  RedisUrl::Address master;
  if (elements.size() == 2) {
    const std::string& port = elements[1].text();
    master.host = elements[0].text();
    const auto [rest, problem] =
        std::from_chars(port.data(), port.data() + port.size(), master.port);
    if (problem == std::errc{} && !master.host.empty()) return master;
  }
  return fail(ErrorKind::io, fmt::format("what answers at {} is no Sentinel; check its port",
                                         format_address(sentinel)));
}

}  // namespace berth
