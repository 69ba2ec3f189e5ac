// Answers the HTTP requests of connections, with limits; cpp-httplib parses requests and writes
// responses.
#pragma once

#include <chrono>
#include <memory>

#include "serve/connection.h"
#include "serve/connection_table.h"
#include "serve/routes.h"

namespace berth::serve {

// Timeouts of a connection, and how ConnectionTable tells clients apart.
struct HttpLimits {
  std::chrono::milliseconds idle{5 * 1000};       // until the first byte of a request
  std::chrono::milliseconds request{10 * 1000};   // from its first byte to its last
  std::chrono::milliseconds work{60 * 1000};      // wait for a result of a WorkQueue
  std::chrono::milliseconds response{60 * 1000};  // to send a response
  std::chrono::milliseconds event{30 * 1000};     // to send an event of the stream
  std::chrono::milliseconds linger{2 * 1000};     // until the client closes its side
  ConnectionTable::GroupBy group_by = ConnectionTable::GroupBy::address;
};

// One object for all connections. Thread-safe: many threads call serve() at once, each with its own
// connection.
class ConnectionHandler {
 public:
  // `hello` is the data of the first event of every stream. `context` and `connections` must
  // outlive this object.
  ConnectionHandler(ServerContext& context, ConnectionTable& connections, SharedText hello,
                    const HttpLimits& limits);
  ConnectionHandler(const ConnectionHandler&) = delete;
  ConnectionHandler& operator=(const ConnectionHandler&) = delete;
  ~ConnectionHandler();

  // Answers requests until the connection must be closed. Never throws.
  void serve(HttpConnection& connection) noexcept;

 private:
  class HttplibServer;

  std::unique_ptr<HttplibServer> httplib_server_;
  ConnectionTable& connections_;
  HttpLimits limits_;
};

}  // namespace berth::serve
