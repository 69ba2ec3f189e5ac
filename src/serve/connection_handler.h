// Answers the HTTP requests of connections, with limits.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "serve/connection.h"
#include "serve/connection_table.h"
#include "serve/routes.h"
#include "serve/stream.h"

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

  // Answers requests until the connection must be closed. Never throws.
  void serve(HttpConnection& connection) noexcept;

 private:
  // What serve() does after a response.
  enum class Next : std::uint8_t {
    request,  // read another request
    linger,   // close the connection when the client has read the response
    close,    // close the connection at once: it is broken
  };

  Next serve_request(HttpConnection& connection, bool is_last);
  // On failure returns false; `refusal` is then the response to send, or stays empty if the client
  // has closed the connection.
  bool receive_request(HttpConnection& connection, HttpRequest& request,
                       std::optional<HttpRefusal>& refusal) const;
  HttpResponse make_response(RouteResult result, HttpConnection& connection);
  HttpResponse wait_for_response(const SharedPendingResponse& pending, HttpConnection& connection);
  Next send_response(const HttpResponse& response, HttpConnection& connection, bool with_body,
                     bool keep_alive) const;
  Next send_stream(HttpConnection& connection, bool with_jobs);
  // Sends the next event, or waits until there may be one. False if the viewer has disconnected.
  bool send_event(ViewerStream& viewer, const Subscription& subscription,
                  HttpConnection& connection) const;

  ServerContext& context_;
  ConnectionTable& connections_;
  SharedText hello_;
  HttpLimits limits_;
};

}  // namespace berth::serve
