// The loop that accepts connections, and their threads; see server.h.
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

namespace berth {
namespace {

using Work = std::function<void()>;

void* do_work(void* given) {
  const std::unique_ptr<Work> work(static_cast<Work*>(given));
  (*work)();
  return nullptr;
}

// False if there can be no more threads. As std::thread, but with a stack whose size does not
// depend on the limits of whoever serves: some hundred of theirs may be more than can be had.
bool start_thread(std::unique_ptr<Work> work) {
  constexpr std::size_t kStack = 1 << 20;
  pthread_attr_t attributes;
  if (::pthread_attr_init(&attributes) != 0) return false;
  ::pthread_attr_setstacksize(&attributes, kStack);
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread{};
  const int problem = ::pthread_create(&thread, &attributes, do_work, work.get());
  ::pthread_attr_destroy(&attributes);
  if (problem == 0) work.release();  // NOLINT(bugprone-unused-return-value): the thread has it
  return problem == 0;
}

std::string full_text() {
  const HttpAnswer answer = full_answer();
  std::string text = "HTTP/1.1 503 Service Unavailable\r\n";
  for (const auto& [name, value] : all_headers(answer)) {
    text += fmt::format("{}: {}\r\n", name, value);
  }
  return text + fmt::format("Content-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
                            answer.type, answer.content().size(), answer.content());
}

}  // namespace

HttpServer::HttpServer(Listener listener, ServerContext& counter, SharedText hello,
                       const HttpLimits& limits)
    : listener_(std::move(listener)),
      clients_(std::make_shared<Clients>(limits.count)),
      speaker_(counter, *clients_, std::move(hello), limits) {}

HttpServer::~HttpServer() {
  clients_->end();
}

void HttpServer::run(int until) {
  constexpr int kForever = -1;
  constexpr int kNow = 200;  // milliseconds
  bool accepts = true;
  for (;;) {
    // Where there are no descriptors left, who waits would wake us without end.
    std::array<pollfd, 2> fds{
        {{until, POLLIN, 0}, {accepts ? listener_.socket.get() : -1, POLLIN, 0}}};
    ::poll(fds.data(), fds.size(), accepts && turned_away_.empty() ? kForever : kNow);
    if (fds[0].revents != 0) return;
    forget_turned_away(Clock::now());
    accepts = accept_all();
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
    if (clients_->enter(socket.get(), client_address(peer))) {
      serve(std::move(socket));
    } else {
      turn_away(std::move(socket));
    }
  }
  return true;
}

void HttpServer::serve(UniqueFd socket) {
  // The list of clients outlives the server, which goes as soon as the last has left it.
  const int fd = socket.get();
  auto work = std::make_unique<Work>([this, fd, clients = clients_] {
    HttpConnection connection{UniqueFd(fd)};
    speaker_.serve(connection);
    clients->leave(fd);
  });
  if (start_thread(std::move(work))) {
    (void)socket.release();  // the thread's
    return;
  }
  clients_->leave(fd);
  turn_away(std::move(socket));
}

// Without a thread. What does not fit into the kernel's buffer is not sent; this always does.
void HttpServer::turn_away(UniqueFd socket) {
  static const std::string text = full_text();
  (void)!::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(socket.get(), SHUT_WR);
  // Were it closed over a request that is on its way, the answer would be lost.
  constexpr std::chrono::seconds kHeard(1);
  constexpr std::size_t kMost = 64;
  if (turned_away_.size() >= kMost) turned_away_.pop_front();
  turned_away_.push_back({std::move(socket), Clock::now() + kHeard});
}

void HttpServer::forget_turned_away(Clock::time_point now) {
  while (!turned_away_.empty() && turned_away_.front().until <= now) turned_away_.pop_front();
}

}  // namespace berth
