// Opens the listening socket; see server.h.
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/text.h"
#include "serve/server.h"

namespace berth::serve {
namespace {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

std::optional<SocketAddress> parse_address(const std::string& text, std::uint16_t port) {
  SocketAddress address;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.size = sizeof *v4;
    return address;
  }
  if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address.size = sizeof *v6;
    return address;
  }
  return std::nullopt;
}

std::uint16_t local_port(int socket) {
  SocketAddress address;
  address.size = sizeof address.storage;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) {
    return 0;
  }
  return ntohs(address.storage.ss_family == AF_INET6
                   ? reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port
                   : reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port);
}

}  // namespace

bool is_ip_address(const std::string& text) {
  return parse_address(text, 0).has_value();
}

Result<Listener> open_listener(const std::string& address, std::uint16_t port) {
  const auto socket_address = parse_address(address, port);
  if (!socket_address) {
    return fail(ErrorKind::usage,
                fmt::format("serve: {} is not an IP address", in_quotes(address)));
  }
  const auto listen_error = [&](int problem) {
    const char* const advice =
        problem == EADDRINUSE ? "; another program uses this port (--port 0 chooses a free one)"
        : problem == EACCES   ? "; use a port above 1023"
                              : "";
    return fail(ErrorKind::io, fmt::format("serve: cannot listen on {} port {}: {}{}", address,
                                           port, ::strerrordesc_np(problem), advice));
  };
  UniqueFd socket(
      ::socket(socket_address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return listen_error(errno);
  const int on = 1;
  // Otherwise a restarted server could not listen for a minute (TIME_WAIT).
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&socket_address->storage),
             socket_address->size) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return listen_error(errno);
  }
  const std::uint16_t chosen = local_port(socket.get());
  return Listener{std::move(socket), chosen};
}

}  // namespace berth::serve
