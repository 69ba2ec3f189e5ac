// Fuzzes replies of a Redis server, or of another program at its port.
#include <algorithm>
#include <sys/socket.h>
#include <utility>

#include "cluster/redis/resp_channel.h"
#include "fuzz/fuzz.h"

namespace berth {
namespace {

std::size_t count_parts(const Reply& reply) {
  std::size_t count = 1;
  for (const Reply& inner : reply.list()) count += count_parts(inner);
  return count;
}

}  // namespace

// The first byte is the number of bytes that arrive at a time; the others are the server's reply.
void fuzz(std::string_view input) {
  if (input.empty()) return;
  const std::size_t step = static_cast<unsigned char>(input.front()) + 1U;
  input.remove_prefix(1);
  int ends[2];
  check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "there are sockets");
  UniqueFd server(ends[1]);
  RespChannel channel(UniqueFd{ends[0]}, "the server");
  std::size_t sent = 0;
  std::size_t received = 0;
  while (sent < input.size()) {
    const auto piece = input.substr(sent, step);
    const ssize_t size =
        ::send(server.get(), piece.data(), piece.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size <= 0) return;  // the client has closed the connection
    sent += static_cast<std::size_t>(size);
    for (;;) {
      const auto answer = channel.receive();
      if (!answer) {
        check(is_printable(answer.error().message), "the error is printable");
        check(!channel.receive(), "a connection that failed stays failed");
        return;
      }
      if (!*answer) break;
      received += count_parts((*answer)->reply);
    }
  }
  check(received <= input.size(), "no reply is larger than what was sent");
}

}  // namespace berth
