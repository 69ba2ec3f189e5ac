// The HTTP server: accepts connections, and gives each of them a thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "serve/connection_table.h"
#include "serve/http_session.h"
#include "serve/routes.h"

namespace berth::serve {

// Addresses only: a name may mean several, and somebody else tomorrow.
bool is_ip_address(const std::string& text);

// A socket that listens, and its port: another one if 0 was asked for. ErrorKind::usage: `address`
// is none. ErrorKind::io: the port is taken, or may not be used.
struct Listener {
  UniqueFd socket;
  std::uint16_t port = 0;
};
Result<Listener> open_listener(const std::string& address, std::uint16_t port);

// For one thread, but for wake_subscriptions().
class HttpServer {
 public:
  // `hello` is what every viewer is sent first.
  HttpServer(Listener listener, ServerContext& context, SharedText hello,
             const HttpLimits& limits = {});
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  // Ends all connections, and waits for their threads: as long as a desk, perhaps.
  ~HttpServer();

  // Serves until `stop_fd` can be read. Connections go on behind it.
  void run(int stop_fd);
  // There is a new picture, or a slip was filled. Every thread may call it.
  void wake_subscriptions() const { connections_->wake_subscriptions(); }

 private:
  using Clock = std::chrono::steady_clock;

  // False if there are no descriptors left.
  bool accept_all();
  void start_session(UniqueFd socket);
  void reject(UniqueFd socket);
  void close_rejected(Clock::time_point now);

  Listener listener_;
  std::shared_ptr<ConnectionTable> connections_;  // shared with the threads
  HttpSession session_;
  // Those who were told that there are too many.
  struct RejectedConnection {
    UniqueFd socket;
    Clock::time_point close_at;
  };
  std::deque<RejectedConnection> rejected_;
};

}  // namespace berth::serve
