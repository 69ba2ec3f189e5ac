// Speaks HTTP on a connection: cpp-httplib parses requests and writes answers, within our bounds.
#pragma once

#include <chrono>
#include <memory>

#include "serve/connection.h"
#include "serve/connection_table.h"
#include "serve/routes.h"

namespace berth::serve {

// How long each thing may take, and how clients are told apart when there are too many.
struct HttpLimits {
  std::chrono::milliseconds idle{5 * 1000};       // until a request begins
  std::chrono::milliseconds request{10 * 1000};   // from its first byte to its last
  std::chrono::milliseconds work{60 * 1000};      // of a desk
  std::chrono::milliseconds response{60 * 1000};  // until it has left
  std::chrono::milliseconds event{30 * 1000};     // the same, of the stream
  std::chrono::milliseconds linger{2 * 1000};
  ConnectionTable::GroupBy group_by = ConnectionTable::GroupBy::address;
};

// For many threads at once, each with a connection of its own.
class HttpSession {
 public:
  // `hello` is what every viewer is sent first. All that is referred to must outlive it.
  HttpSession(ServerContext& context, ConnectionTable& connections, SharedText hello,
              const HttpLimits& limits);
  HttpSession(const HttpSession&) = delete;
  HttpSession& operator=(const HttpSession&) = delete;
  ~HttpSession();

  // Answers one request after the other until the connection is to be closed. Never throws.
  void serve(HttpConnection& connection) noexcept;

 private:
  class HttplibServer;

  std::unique_ptr<HttplibServer> httplib_server_;
  ConnectionTable& connections_;
  HttpLimits limits_;
};

}  // namespace berth::serve
