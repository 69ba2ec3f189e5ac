// Reads and writes with deadlines and size limits; see connection.h.
#include "serve/connection.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

namespace berth::serve {
namespace {

constexpr std::string_view kHeadEnd = "\r\n\r\n";

std::string local_address_of(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return "";
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (storage.ss_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&storage);
    ::inet_ntop(AF_INET, &v4->sin_addr, text.data(), text.size());
    return text.data();
  }
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
  if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {  // an IPv4 client of a dual-stack socket
    ::inet_ntop(AF_INET, v6->sin6_addr.s6_addr + 12, text.data(), text.size());
    return text.data();
  }
  ::inet_ntop(AF_INET6, &v6->sin6_addr, text.data(), text.size());
  return std::string("[") + text.data() + "]";
}

int milliseconds_until(HttpConnection::Clock::time_point deadline) {
  constexpr std::chrono::milliseconds kMaxPoll(60 * 1000);
  const auto now = HttpConnection::Clock::now();
  if (deadline <= now) return 0;
  const auto left = deadline - now;
  if (left >= kMaxPoll) return static_cast<int>(kMaxPoll.count());
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

// False at the deadline.
bool poll_until(pollfd* fds, nfds_t count, HttpConnection::Clock::time_point deadline) {
  for (;;) {
    const int wait = milliseconds_until(deadline);
    const int ready = ::poll(fds, count, wait);
    if (ready > 0) return true;
    if (wait == 0) return false;
  }
}

bool poll_one(int fd, short events, HttpConnection::Clock::time_point deadline) {
  pollfd one{fd, events, 0};
  return poll_until(&one, 1, deadline);
}

// An HTTP request begins with a capital letter; TLS, for example, does not. The client gets an
// error at once instead of a timeout.
bool cannot_be_http(std::string_view bytes) {
  return !bytes.empty() && (bytes.front() < 'A' || bytes.front() > 'Z');
}

// HTTP lines end with CR LF. A client that sends only LF (a user who types into netcat) gets an
// error at once instead of a timeout.
bool has_bare_line_feed(std::string_view text) {
  for (auto at = text.find('\n'); at != std::string_view::npos; at = text.find('\n', at + 1)) {
    if (at == 0 || text[at - 1] != '\r') return true;
  }
  return false;
}

HttpRefusal timeout_refusal() {
  return {408, "the request took too long to arrive"};
}

}  // namespace

HttpConnection::HttpConnection(UniqueFd socket)
    : socket_(std::move(socket)), local_address_(local_address_of(socket_.get())) {}

HttpConnection::ReadResult HttpConnection::receive(Clock::time_point deadline) {
  for (;;) {
    std::array<char, 4096> bytes{};
    const auto got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got == 0) return ReadResult::closed;
    if (got > 0) {
      buffer_.append(bytes.data(), static_cast<std::size_t>(got));
      // poll_one() alone would not end a client that always sends a byte before the wait begins.
      return Clock::now() < deadline ? ReadResult::data : ReadResult::timeout;
    }
    if (errno != EAGAIN && errno != EINTR) return ReadResult::closed;
    if (!poll_one(socket_.get(), POLLIN, deadline)) return ReadResult::timeout;
  }
}

bool HttpConnection::wait_readable(Clock::time_point deadline) const {
  return !buffer_.empty() || poll_one(socket_.get(), POLLIN, deadline);
}

std::optional<std::string> HttpConnection::read_head(Clock::time_point deadline,
                                                     std::optional<HttpRefusal>& refusal) {
  read_deadline_ = deadline;
  for (std::size_t searched = 0;;) {
    const auto end = buffer_.find(kHeadEnd, searched);
    const std::size_t size = end == std::string::npos ? buffer_.size() : end + kHeadEnd.size();
    if (cannot_be_http(buffer_))
      refusal = {400, "malformed HTTP request; if this is HTTPS, use http:// instead"};
    if (has_bare_line_feed(std::string_view(buffer_).substr(0, size))) {
      refusal = {400, "a line of the request does not end with CR LF"};
    }
    if (size > kMaxHeadSize) refusal = {431, "the request line and headers exceed 16 KiB"};
    if (refusal) return std::nullopt;
    if (end != std::string::npos) {
      std::string head = buffer_.substr(0, size);
      buffer_.erase(0, size);
      return head;
    }
    searched = buffer_.size() - std::min(buffer_.size(), kHeadEnd.size() - 1);
    const ReadResult got = receive(deadline);
    if (got == ReadResult::timeout) refusal = timeout_refusal();
    if (got != ReadResult::data) return std::nullopt;
  }
}

bool HttpConnection::read_body(std::string& bytes, std::size_t size,
                               std::optional<HttpRefusal>& refusal) {
  while (buffer_.size() < size) {
    const ReadResult got = receive(read_deadline_);
    if (got == ReadResult::timeout) refusal = timeout_refusal();
    if (got == ReadResult::closed) refusal = {400, "the body is shorter than its Content-Length"};
    if (got != ReadResult::data) return false;
  }
  bytes = buffer_.substr(0, size);
  buffer_.erase(0, size);
  return true;
}

bool HttpConnection::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto sent =
        ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
      // poll_one() alone would not end a client that always reads a byte before the wait begins.
      if (!bytes.empty() && Clock::now() >= write_deadline_) return false;
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) return false;
    if (!poll_one(socket_.get(), POLLOUT, write_deadline_)) return false;
  }
  return true;
}

HttpConnection::WakeReason HttpConnection::wait(const EventFd& wake_event, bool is_viewer,
                                                Clock::time_point deadline) const {
  const short events = is_viewer ? POLLIN | POLLRDHUP : 0;  // poll() adds POLLHUP and POLLERR
  std::array<pollfd, 2> fds{{{wake_event.fd(), POLLIN, 0}, {socket_.get(), events, 0}}};
  if (!poll_until(fds.data(), fds.size(), deadline)) return WakeReason::timeout;
  if (fds[1].revents != 0) return WakeReason::closed;
  wake_event.clear();
  return WakeReason::event;
}

void HttpConnection::linger(Clock::time_point deadline) {
  ::shutdown(socket_.get(), SHUT_WR);
  do {
    buffer_.clear();
  } while (receive(deadline) == ReadResult::data);
}

}  // namespace berth::serve
