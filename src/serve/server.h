// The HTTP server: accepts connections and starts a thread for each.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "serve/connection_handler.h"
#include "serve/connection_table.h"
#include "serve/routes.h"

namespace berth::serve {

// Whether `text` is an IPv4 or IPv6 address. The server does not listen at host names: a name may
// have several addresses, and tomorrow other ones.
bool is_ip_address(const std::string& text);

struct Listener {
  UniqueFd socket;         // listening, non-blocking
  std::uint16_t port = 0;  // the real one, also if port 0 was requested
};
// ErrorKind::usage: `address` is not an IP address. ErrorKind::io: the port is in use, or the user
// may not use it.
Result<Listener> open_listener(const std::string& address, std::uint16_t port);

// Used by one thread, except for wake_subscriptions(). `context` must outlive it.
class HttpServer {
 public:
  // `hello` is the data of the first event of every stream.
  HttpServer(Listener listener, ServerContext& context, SharedText hello,
             const HttpLimits& limits = {});
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  // Closes all connections, and waits until their threads have removed them from the table.
  ~HttpServer();

  // Accepts connections until `stop_fd` is readable. Open connections continue after that.
  void run(int stop_fd);
  // Call it when there is a new snapshot or a pending response is ready. Thread-safe.
  void wake_subscriptions() const { connections_->wake_subscriptions(); }

 private:
  using Clock = std::chrono::steady_clock;

  // False if no descriptor (or memory) is left.
  bool accept_all();
  void start_connection(UniqueFd socket);
  void reject(UniqueFd socket);
  void close_rejected(Clock::time_point now);

  Listener listener_;
  std::shared_ptr<ConnectionTable> connections_;  // shared with the threads of the connections
  ConnectionHandler connection_handler_;
  // Connections that were answered with status 503, and are closed a moment later: see reject().
  struct RejectedConnection {
    UniqueFd socket;
    Clock::time_point close_at;
  };
  std::deque<RejectedConnection> rejected_;
};

}  // namespace berth::serve
