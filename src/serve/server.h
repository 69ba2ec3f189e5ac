// The HTTP server: accepts connections, and gives each of them a thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "serve/clients.h"
#include "serve/http_session.h"
#include "serve/routes.h"

namespace berth {

// Addresses only: a name may mean several, and somebody else tomorrow.
bool is_ip_address(const std::string& text);

// A socket that listens, and its port: another one if 0 was asked for. ErrorKind::usage: `address`
// is none. ErrorKind::io: the port is taken, or may not be used.
struct Listener {
  UniqueFd socket;
  std::uint16_t port = 0;
};
Result<Listener> listen_at(const std::string& address, std::uint16_t port);

// For one thread, but for poke().
class HttpServer {
 public:
  // `hello` is what every viewer is sent first.
  HttpServer(Listener listener, ServerContext& counter, SharedText hello, const HttpLimits& limits = {});
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  // Ends all connections, and waits for their threads: as long as a desk, perhaps.
  ~HttpServer();

  // Serves until `until` can be read. Connections go on behind it.
  void run(int until);
  // There is a new picture, or a slip was filled. Every thread may call it.
  void poke() const { clients_->poke(); }

 private:
  using Clock = std::chrono::steady_clock;

  // False if there are no descriptors left.
  bool accept_all();
  void serve(UniqueFd socket);
  void turn_away(UniqueFd socket);
  void forget_turned_away(Clock::time_point now);

  Listener listener_;
  std::shared_ptr<Clients> clients_;  // shared with the threads
  HttpSession speaker_;
  // Those who were told that there are too many.
  struct Gone {
    UniqueFd socket;
    Clock::time_point until;
  };
  std::deque<Gone> turned_away_;
};

}  // namespace berth
