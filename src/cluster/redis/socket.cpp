// Connecting with a timeout; see socket.h.
#include "cluster/redis/socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;

// A server that vanished without closing the connection is noticed after 30 s, also while this
// process waits for a blocking command.
constexpr int kKeepAliveIdle = 15;
constexpr int kKeepAliveInterval = 5;
constexpr int kKeepAliveProbes = 3;

constexpr int kSocketType = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

tl::unexpected<Error> connect_error(int reason) {
  // Permission errors are permanent.
  const bool is_permanent = reason == EACCES || reason == EPERM;
  return fail(is_permanent ? ErrorKind::io : ErrorKind::unavailable, std::strerror(reason));
}

void set_option(int fd, int level, int option, int value) {
  ::setsockopt(fd, level, option, &value, sizeof value);
}

Result<UniqueFd> connect_to(const addrinfo& to, std::chrono::milliseconds timeout) {
  UniqueFd fd(::socket(to.ai_family, kSocketType, to.ai_protocol));
  if (!fd) return connect_error(errno);
  set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd.get(), IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdle);
  set_option(fd.get(), IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveInterval);
  set_option(fd.get(), IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  if (::connect(fd.get(), to.ai_addr, to.ai_addrlen) == 0) return fd;
  if (errno != EINPROGRESS && errno != EINTR) return connect_error(errno);
  if (!poll_until(Clock::now() + timeout, fd.get(), POLLOUT)) return connect_error(ETIMEDOUT);
  int reason = 0;
  socklen_t size = sizeof reason;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &reason, &size) != 0) reason = errno;
  if (reason != 0) return connect_error(reason);
  return fd;
}

}  // namespace

bool poll_until(Clock::time_point deadline, int fd, short events) {
  pollfd entry{fd, events, 0};
  for (;;) {
    const auto remaining = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const int ready = ::poll(&entry, 1, static_cast<int>(std::max<long>(remaining.count(), 0)));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

Result<UniqueFd> connect_tcp(const RedisUrl::Address& address, std::chrono::milliseconds timeout) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  const std::string port = std::to_string(address.port);
  const int problem = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &first);
  if (problem != 0) {
    const char* reason = problem == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(problem);
    return fail(ErrorKind::unavailable,
                fmt::format("the host name cannot be resolved ({})", reason));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(first, ::freeaddrinfo);
  Result<UniqueFd> fd = connect_error(EADDRNOTAVAIL);
  for (const addrinfo* candidate = first; candidate != nullptr && !fd;
       candidate = candidate->ai_next) {
    fd = connect_to(*candidate, timeout);
  }
  return fd;
}

Result<UniqueFd> connect_unix(const std::string& path, std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kRetryDelay(5);
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (path.size() >= sizeof to.sun_path) return connect_error(ENAMETOOLONG);
  std::copy(path.begin(), path.end(), to.sun_path);
  UniqueFd fd(::socket(AF_UNIX, kSocketType, 0));
  if (!fd) return connect_error(errno);
  const auto deadline = Clock::now() + timeout;
  // EAGAIN: the server's backlog is full. There is no event for when it has room again, so this
  // tries until the deadline.
  while (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return connect_error(errno);
    if (Clock::now() >= deadline) return connect_error(ETIMEDOUT);
    std::this_thread::sleep_for(kRetryDelay);
  }
  return fd;
}

}  // namespace berth
