// Reads requests, sends responses and streams events; see connection_handler.h.
#include "serve/connection_handler.h"

#include <memory>
#include <sys/socket.h>
#include <utility>

namespace berth::serve {
namespace {

using Clock = HttpConnection::Clock;

constexpr int kMaxRequestsPerConnection = 100;

HttpResponse timeout_response() {
  return error_response(503, "the request took too long; request less, or try again later");
}

}  // namespace

ConnectionHandler::ConnectionHandler(ServerContext& context, ConnectionTable& connections,
                                     SharedText hello, const HttpLimits& limits)
    : context_(context), connections_(connections), hello_(std::move(hello)), limits_(limits) {}

void ConnectionHandler::serve(HttpConnection& connection) noexcept try {
  for (int number = 1;; ++number) {
    if (!connection.wait_readable(Clock::now() + limits_.idle)) return;
    if (!connections_.begin_request(connection.fd())) return;
    const Next next = serve_request(connection, number == kMaxRequestsPerConnection);
    if (next == Next::close) return;
    connections_.set_idle(connection.fd());
    if (next == Next::linger) break;
  }
  connection.linger(Clock::now() + limits_.linger);
} catch (...) {
  // Thread entry: an exception (such as std::bad_alloc) ends this connection, not the server.
}

ConnectionHandler::Next ConnectionHandler::serve_request(HttpConnection& connection, bool is_last) {
  connection.set_write_deadline(Clock::now() + limits_.response);
  HttpRequest request;
  std::optional<HttpRefusal> refusal;
  if (!receive_request(connection, request, refusal)) {
    if (!refusal) return Next::close;
    // After an invalid request, the start of the next request is unknown.
    return send_response(error_response(refusal->status, refusal->text), connection, true, false);
  }
  connections_.begin_response(connection.fd());
  bool keep_alive = request.keep_alive && !is_last;
  std::optional<HttpResponse> response;  // nullopt: the request is for the stream of events
  bool stream_with_jobs = false;
  try {
    RouteResult result = handle_request(request, connection.local_address(), context_);
    stream_with_jobs = result.stream_with_jobs;
    if (!result.stream) response = make_response(std::move(result), connection);
  } catch (...) {
    response = error_response(500, "internal error");
    keep_alive = false;
  }
  if (!response) return send_stream(connection, stream_with_jobs);
  return send_response(*response, connection, request.method != "HEAD", keep_alive);
}

bool ConnectionHandler::receive_request(HttpConnection& connection, HttpRequest& request,
                                        std::optional<HttpRefusal>& refusal) const {
  const auto head = connection.read_head(Clock::now() + limits_.request, refusal);
  if (!head) return false;
  std::size_t body_size = 0;
  refusal = parse_head(*head, request, body_size);
  if (refusal) return false;
  // The client waits for this before it sends the body.
  if (request.header("expect") == "100-continue" &&
      !connection.write("HTTP/1.1 100 Continue\r\n\r\n")) {
    return false;
  }
  return connection.read_body(request.body, body_size, refusal);
}

HttpResponse ConnectionHandler::make_response(RouteResult result, HttpConnection& connection) {
  if (result.response) return std::move(*result.response);
  return wait_for_response(result.pending, connection);
}

// Waits until the work queue has set the response.
HttpResponse ConnectionHandler::wait_for_response(const SharedPendingResponse& pending,
                                                  HttpConnection& connection) {
  const Subscription subscription(connections_, Subscription::Kind::waiter, connection.fd());
  if (!subscription) return too_many_connections_response();
  const auto deadline = Clock::now() + limits_.work;
  for (;;) {
    if (auto response_ready = pending->get()) return *std::move(response_ready);
    const auto wake_reason = connection.wait(subscription.wake_event(), false, deadline);
    // If the client has closed the connection, sending this response fails, which is harmless.
    if (wake_reason != HttpConnection::WakeReason::event) return timeout_response();
  }
}

ConnectionHandler::Next ConnectionHandler::send_response(const HttpResponse& response,
                                                         HttpConnection& connection, bool with_body,
                                                         bool keep_alive) const {
  connection.set_write_deadline(Clock::now() + limits_.response);
  const std::string head = format_response_head(response, BodyEnd::content_length, keep_alive);
  const bool has_body = with_body && response.status != 304;
  if (!connection.write(head)) return Next::close;
  if (has_body && !connection.write(response.content())) return Next::close;
  return keep_alive ? Next::request : Next::linger;
}

ConnectionHandler::Next ConnectionHandler::send_stream(HttpConnection& connection, bool with_jobs) {
  const Subscription subscription(connections_, Subscription::Kind::viewer, connection.fd());
  if (!subscription) {
    return send_response(too_many_connections_response(), connection, true, false);
  }
  // By default the kernel would buffer megabytes for each viewer that does not read.
  constexpr int kSendBufferSize = 128 << 10;
  ::setsockopt(connection.fd(), SOL_SOCKET, SO_SNDBUF, &kSendBufferSize, sizeof kSendBufferSize);
  HttpResponse response;
  response.type = "text/event-stream";
  response.headers.emplace_back("X-Accel-Buffering", "no");  // else nginx delays the events
  connection.set_write_deadline(Clock::now() + limits_.response);
  if (!connection.write(format_response_head(response, BodyEnd::connection_close, false))) {
    return Next::close;
  }
  context_.viewer_activity.add_viewer();
  const std::unique_ptr<ViewerActivity, void (*)(ViewerActivity*)> viewer_registration(
      &context_.viewer_activity, [](ViewerActivity* activity) { activity->remove_viewer(); });
  ViewerStream viewer(hello_, with_jobs);
  while (send_event(viewer, subscription, connection)) {
  }
  return Next::close;
}

bool ConnectionHandler::send_event(ViewerStream& viewer, const Subscription& subscription,
                                   HttpConnection& connection) const {
  const auto pieces = viewer.next_event(*context_.publisher.current(), Clock::now());
  if (pieces.empty()) {
    const auto wake_reason =
        connection.wait(subscription.wake_event(), true, viewer.keepalive_due());
    return wake_reason != HttpConnection::WakeReason::closed;
  }
  connection.set_write_deadline(Clock::now() + limits_.event);
  for (const SharedText& piece : pieces) {
    if (!connection.write(*piece)) return false;
  }
  return true;
}

}  // namespace berth::serve
