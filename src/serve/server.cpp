// Accepts connections and runs their threads; see server.h.
#include "serve/server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fmt/format.h>
#include <functional>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <utility>

namespace berth::serve {
namespace {

using ThreadFunction = std::function<void()>;

void* run_thread_function(void* argument) {
  const std::unique_ptr<ThreadFunction> function(static_cast<ThreadFunction*>(argument));
  (*function)();
  return nullptr;
}

// Starts a detached thread; false if the system refuses it. std::thread would use the stack size of
// the user's limits (ulimit -s), and some hundred stacks of that size may not fit into memory.
bool start_thread(std::unique_ptr<ThreadFunction> function) {
  constexpr std::size_t kStackSize = 1 << 20;
  pthread_attr_t attributes;
  if (::pthread_attr_init(&attributes) != 0) return false;
  ::pthread_attr_setstacksize(&attributes, kStackSize);
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread{};
  const int problem = ::pthread_create(&thread, &attributes, run_thread_function, function.get());
  ::pthread_attr_destroy(&attributes);
  if (problem == 0)
    function.release();  // NOLINT(bugprone-unused-return-value): owned by the thread
  return problem == 0;
}

std::string rejection_text() {
  const HttpResponse response = too_many_connections_response();
  return format_response_head(response, BodyEnd::content_length, false).append(response.content());
}

}  // namespace

HttpServer::HttpServer(Listener listener, ServerContext& context, SharedText hello,
                       const HttpLimits& limits)
    : listener_(std::move(listener)),
      connections_(std::make_shared<ConnectionTable>(limits.group_by)),
      connection_handler_(context, *connections_, std::move(hello), limits) {}

HttpServer::~HttpServer() {
  connections_->close_all();
}

void HttpServer::run(int stop_fd) {
  constexpr int kNoTimeout = -1;
  constexpr int kPollTimeout = 200;  // milliseconds
  bool accepting = true;
  for (;;) {
    // Without free descriptors a waiting connection cannot be accepted, and poll() would return at
    // once again and again: then the listener is left out, and the next try is after kPollTimeout.
    std::array<pollfd, 2> fds{
        {{stop_fd, POLLIN, 0}, {accepting ? listener_.socket.get() : -1, POLLIN, 0}}};
    ::poll(fds.data(), fds.size(), accepting && rejected_.empty() ? kNoTimeout : kPollTimeout);
    if (fds[0].revents != 0) return;
    close_rejected(Clock::now());
    accepting = accept_all();
  }
}

bool HttpServer::accept_all() {
  for (int i = 0; i < 64; ++i) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    UniqueFd socket(::accept4(listener_.socket.get(), reinterpret_cast<sockaddr*>(&peer), &size,
                              SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      return errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS;
    }
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connections_->add(socket.get(), client_address(peer))) {
      start_connection(std::move(socket));
    } else {
      reject(std::move(socket));
    }
  }
  return true;
}

void HttpServer::start_connection(UniqueFd socket) {
  // The thread shares the table: the destructor of the server returns as soon as the last
  // connection is removed, while that thread may still be inside remove().
  const int fd = socket.get();
  auto function = std::make_unique<ThreadFunction>([this, fd, connections = connections_] {
    HttpConnection connection{UniqueFd(fd)};
    connection_handler_.serve(connection);
    connections->remove(fd);
  });
  if (start_thread(std::move(function))) {
    (void)socket.release();  // owned by the thread
    return;
  }
  connections_->remove(fd);
  reject(std::move(socket));
}

// Answers in this thread, without blocking: the text always fits into the kernel's send buffer.
void HttpServer::reject(UniqueFd socket) {
  static const std::string text = rejection_text();
  (void)!::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(socket.get(), SHUT_WR);
  // If the socket were closed while the request arrives, the kernel would reset the connection, and
  // the client could lose the answer.
  constexpr std::chrono::seconds kRejectLinger(1);
  constexpr std::size_t kMaxRejected = 64;
  if (rejected_.size() >= kMaxRejected) rejected_.pop_front();
  rejected_.push_back({std::move(socket), Clock::now() + kRejectLinger});
}

void HttpServer::close_rejected(Clock::time_point now) {
  while (!rejected_.empty() && rejected_.front().close_at <= now) rejected_.pop_front();
}

}  // namespace berth::serve
