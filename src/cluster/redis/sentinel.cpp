// The one question, and the password if it is wanted; see sentinel.h.
#include "cluster/redis/sentinel.h"

#include <charconv>
#include <fmt/format.h>

#include "cluster/redis/connection.h"
#include "cluster/redis/resp_channel.h"
#include "cluster/redis/server_error.h"
#include "cluster/redis/socket.h"

namespace berth {
namespace {

// As long as for a connection: there are others to ask.
constexpr std::chrono::milliseconds kPatience = kRedisConnectTimeout;

Result<Answer> ask(RespChannel& link, const RespChannel::Words& words) {
  auto answers = link.exchange({words}, kPatience);
  if (!answers) return tl::make_unexpected(answers.error());
  return Result<Answer>(std::move(answers->front()));
}

Result<void> authenticate(RespChannel& link, const RedisUrl& url, const ServerIdentity& party) {
  RespChannel::Words words{"AUTH"};
  if (!url.user.empty()) words.push_back(url.user);
  words.push_back(url.password);
  const auto answer = ask(link, words);
  if (!answer) return tl::make_unexpected(answer.error());
  if (answer->error) return tl::make_unexpected(meaning_of_refusal(*answer->error, party));
  return {};
}

}  // namespace

Result<RedisUrl::Address> ask_sentinel(const RedisUrl& url, const RedisUrl::Address& sentinel) {
  const ServerIdentity party{fmt::format("the Sentinel at {}", shown(sentinel)), url.user, url.prefix};
  auto socket = connect_tcp(sentinel, kRedisConnectTimeout);
  if (!socket) {
    return fail(socket.error().kind,
                fmt::format("{} cannot be reached: {}", party.server, socket.error().message));
  }
  RespChannel link(std::move(*socket), party.server);
  const RespChannel::Words question{"SENTINEL", "get-master-addr-by-name", url.master};
  auto answer = ask(link, question);
  // Only to who asks: the password is the server's.
  if (answer && answer->error && answer->error->starts_with("NOAUTH") && !url.password.empty()) {
    if (auto good = authenticate(link, url, party); !good) return tl::make_unexpected(good.error());
    answer = ask(link, question);
  }
  if (!answer) return tl::make_unexpected(answer.error());
  if (answer->error && answer->error->starts_with("ERR unknown command")) {
    return fail(ErrorKind::io,
                fmt::format("what answers at {} is no Sentinel; write redis:// for a server, or "
                            "Sentinel's port",
                            shown(sentinel)));
  }
  if (answer->error) return tl::make_unexpected(translate_error(*answer->error, party));
  if (answer->reply.is_nil()) {
    return fail(ErrorKind::io,
                fmt::format("{} watches no master called {}; see redis-cli -p {} "
                            "SENTINEL masters",
                            party.server, url.master, sentinel.port));
  }
  const auto& parts = answer->reply.list();
  RedisUrl::Address master;
  if (parts.size() == 2) {
    const std::string& port = parts[1].text();
    master.host = parts[0].text();
    const auto [rest, problem] =
        std::from_chars(port.data(), port.data() + port.size(), master.port);
    if (problem == std::errc{} && !master.host.empty()) return master;
  }
  return fail(ErrorKind::io,
              fmt::format("what answers at {} is no Sentinel; check its port", shown(sentinel)));
}

}  // namespace berth
