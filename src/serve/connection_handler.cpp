// Runs requests through cpp-httplib, which only this file uses; see connection_handler.h.
//
// Of httplib::Server only process_request() is used: it reads a request from a stream, calls the
// handlers and writes the response. Its accept loop is not used: it ends permanently when a client
// closes a connection before it is accepted (ECONNABORTED), and its sockets are inherited by
// programs that another thread starts at that moment. The pre-routing handler answers every
// request, so cpp-httplib's regular expressions and its body readers, which have no limits, are
// never reached.
#include "serve/connection_handler.h"

#include <csignal>
#include <cstring>
#include <exception>
#include <sys/socket.h>
#include <utility>

#include "serve/stream.h"

// cpp-httplib limits only single lines. The size of the whole head is checked before; then
// sanitize_head() may replace each '%' by three bytes.
#define CPPHTTPLIB_REQUEST_URI_MAX_LENGTH (3 * berth::serve::kMaxHeadSize)
#define CPPHTTPLIB_HEADER_MAX_LENGTH (3 * berth::serve::kMaxHeadSize)
#define CPPHTTPLIB_USE_POLL  // select() does not support descriptors above 1023
#include <httplib.h>

namespace berth::serve {
namespace {

using Clock = HttpConnection::Clock;

constexpr int kMaxRequestsPerConnection = 100;

// One request and its response.
struct Exchange {
  HttpConnection& connection;
  std::string head;
  std::optional<HttpRefusal> refusal{};
  HttpRequest request{};
  std::size_t body_size = 0;
  bool close_after = false;  // close the connection after the response
  bool has_response = false;
};

// The exchange that this thread processes: cpp-httplib passes its handlers the request, but not the
// stream.
thread_local Exchange* current_exchange = nullptr;

class ExchangeStream final : public httplib::Stream {
 public:
  ExchangeStream(HttpConnection& connection, std::string_view head)
      : connection_(connection), head_(head) {}

  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  // Returns only the head; HttpConnection::read_body() reads the body.
  ssize_t read(char* bytes, std::size_t size) override {
    const std::size_t count = std::min(size, head_.size());
    std::memcpy(bytes, head_.data(), count);
    head_.remove_prefix(count);
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char* bytes, std::size_t size) override {
    return connection_.write({bytes, size}) ? static_cast<ssize_t>(size) : -1;
  }
  // The addresses are not used.
  void get_remote_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  void get_local_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  socket_t socket() const override { return connection_.fd(); }

 private:
  HttpConnection& connection_;
  std::string_view head_;
};

void set_headers(httplib::Response& target, const HttpResponse& response) {
  target.status = response.status;
  for (const auto& [name, value] : response_headers(response)) target.set_header(name, value);
}

// Does not copy the body: many responses share it.
void set_response(httplib::Response& target, const HttpResponse& response) {
  set_headers(target, response);
  const std::string_view content = response.content();
  if (content.empty() || response.status == 304) return;
  target.set_content_provider(content.size(), response.type,
                              [body = response.body, content](std::size_t offset, std::size_t size,
                                                              httplib::DataSink& sink) {
                                return sink.write(content.data() + offset, size);
                              });
}

// Copies the request that cpp-httplib has parsed into the exchange, or sets its refusal.
void store_request(const httplib::Request& request, Exchange& exchange) {
  exchange.request.method = request.method;
  exchange.request.keep_alive = request.version == "HTTP/1.1";
  exchange.refusal =
      parse_request(request.target, HttpHeaders(request.headers.begin(), request.headers.end()),
                    exchange.request, exchange.body_size);
}

HttpResponse timeout_response() {
  return error_response(503, "the request took too long; request less, or try again later");
}

}  // namespace

class ConnectionHandler::HttplibServer : public httplib::Server {
 public:
  HttplibServer(ServerContext& context, ConnectionTable& connections, SharedText hello,
                const HttpLimits& limits);

  // Answers one request. False if the connection must be closed.
  bool process(Exchange& exchange);

 private:
  HandlerResponse respond(httplib::Response& response);
  HttpResponse wait_for_response(const SharedPendingResponse& pending, HttpConnection& connection);
  void start_stream(httplib::Response& response, Exchange& exchange);
  bool send_event(ViewerStream& viewer, const Subscription& subscription,
                  HttpConnection& connection, httplib::DataSink& sink);
  static HandlerResponse set_error(httplib::Response& response);
  void finish_headers(httplib::Response& response) const;

  ServerContext& context_;
  ConnectionTable& connections_;
  SharedText hello_;
  HttpLimits limits_;
};

ConnectionHandler::HttplibServer::HttplibServer(ServerContext& context,
                                                ConnectionTable& connections, SharedText hello,
                                                const HttpLimits& limits)
    : context_(context), connections_(connections), hello_(std::move(hello)), limits_(limits) {
  svr_sock_ = 0;  // any value but INVALID_SOCKET, which would mean that the server was stopped
  set_payload_max_length(kMaxBodySize);
  // Refuses the request before the client sends its body.
  set_expect_100_continue_handler([](const httplib::Request&, httplib::Response& response) {
    if (current_exchange->refusal) response.status = current_exchange->refusal->status;
    return current_exchange->refusal ? response.status : 100;
  });
  set_pre_routing_handler(
      [this](const httplib::Request&, httplib::Response& response) { return respond(response); });
  set_error_handler(HandlerWithResponse(
      [](const httplib::Request&, httplib::Response& response) { return set_error(response); }));
  set_exception_handler(
      [](const httplib::Request&, httplib::Response& response, const std::exception_ptr&) {
        response = {};
        response.status = 500;
        current_exchange->close_after = true;
        current_exchange->has_response = false;
      });
  set_post_routing_handler(
      [this](const httplib::Request&, httplib::Response& response) { finish_headers(response); });
}

bool ConnectionHandler::HttplibServer::process(Exchange& exchange) {
  current_exchange = &exchange;
  // cpp-httplib also writes the response to a request that was refused before it was parsed: it is
  // given an invalid request line, and set_error() then fills in the refusal.
  constexpr std::string_view kInvalidLine = "\n";
  ExchangeStream stream(exchange.connection,
                        exchange.refusal ? kInvalidLine : std::string_view(exchange.head));
  bool ignored = false;
  const bool sent =
      process_request(stream, exchange.close_after, ignored,
                      [&](httplib::Request& request) { store_request(request, exchange); });
  current_exchange = nullptr;
  return sent;
}

httplib::Server::HandlerResponse ConnectionHandler::HttplibServer::respond(
    httplib::Response& response) {
  Exchange& exchange = *current_exchange;
  HttpConnection& connection = exchange.connection;
  if (!exchange.refusal) {
    connection.read_body(exchange.request.body, exchange.body_size, exchange.refusal);
  }
  if (exchange.refusal) {
    response.status = exchange.refusal->status;  // set_error() adds the body
    return HandlerResponse::Handled;
  }
  connections_.begin_response(connection.fd());
  if (!exchange.request.keep_alive) exchange.close_after = true;
  exchange.has_response = true;
  const auto result = handle_request(exchange.request, connection.local_address(), context_);
  if (result.response) {
    set_response(response, *result.response);
  } else if (result.pending) {
    set_response(response, wait_for_response(result.pending, connection));
  } else {
    start_stream(response, exchange);
  }
  return HandlerResponse::Handled;
}

// Waits until the work queue has set the response.
HttpResponse ConnectionHandler::HttplibServer::wait_for_response(
    const SharedPendingResponse& pending, HttpConnection& connection) {
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

void ConnectionHandler::HttplibServer::start_stream(httplib::Response& response,
                                                    Exchange& exchange) {
  HttpConnection& connection = exchange.connection;
  const auto subscription = std::make_shared<const Subscription>(
      connections_, Subscription::Kind::viewer, connection.fd());
  exchange.close_after = true;
  if (!*subscription) return set_response(response, too_many_connections_response());
  // By default the kernel would buffer megabytes for each viewer that does not read.
  constexpr int kSendBufferSize = 128 << 10;
  ::setsockopt(connection.fd(), SOL_SOCKET, SO_SNDBUF, &kSendBufferSize, sizeof kSendBufferSize);
  HttpResponse stream_response;
  stream_response.headers.emplace_back("X-Accel-Buffering", "no");  // else nginx delays the events
  set_headers(response, stream_response);
  context_.viewer_activity.add_viewer();
  const std::shared_ptr<ViewerActivity> viewer_registration(
      &context_.viewer_activity, [](ViewerActivity* activity) { activity->remove_viewer(); });
  // The stream has no length: it ends when the connection is closed.
  response.set_content_provider(
      "text/event-stream", [this, viewer = ViewerStream(hello_), subscription, viewer_registration,
                            &connection](std::size_t, httplib::DataSink& sink) mutable {
        return send_event(viewer, *subscription, connection, sink);
      });
}

// Sends the next event, or waits until there may be one. False if the viewer has disconnected.
bool ConnectionHandler::HttplibServer::send_event(ViewerStream& viewer,
                                                  const Subscription& subscription,
                                                  HttpConnection& connection,
                                                  httplib::DataSink& sink) {
  const auto pieces = viewer.next_event(*context_.publisher.current(), Clock::now());
  if (pieces.empty()) {
    const auto wake_reason =
        connection.wait(subscription.wake_event(), true, viewer.keepalive_due());
    return wake_reason != HttpConnection::WakeReason::closed;
  }
  connection.set_write_deadline(Clock::now() + limits_.event);
  for (const SharedText& piece : pieces) {
    if (!sink.write(piece->data(), piece->size())) return false;
  }
  return true;
}

// cpp-httplib calls this for every response with a status from 400 on, also for those of respond().
httplib::Server::HandlerResponse ConnectionHandler::HttplibServer::set_error(
    httplib::Response& response) {
  Exchange& exchange = *current_exchange;
  if (exchange.has_response) return HandlerResponse::Unhandled;
  // After an invalid request, the start of the next request is unknown.
  exchange.close_after = true;
  exchange.has_response = true;
  const int status = response.status;
  if (exchange.refusal) {
    set_response(response, error_response(exchange.refusal->status, exchange.refusal->text));
  } else if (status < 500) {
    set_response(response, error_response(status, "malformed HTTP request"));
  } else {
    set_response(response, error_response(status, "internal error"));
  }
  return HandlerResponse::Handled;
}

// cpp-httplib calls this as the last step before it writes a response.
void ConnectionHandler::HttplibServer::finish_headers(httplib::Response& response) const {
  response.headers.erase("Accept-Ranges");
  response.headers.erase("Keep-Alive");
  response.headers.erase("Connection");
  response.set_header("Connection", current_exchange->close_after ? "close" : "keep-alive");
  if (response.status == 304) response.headers.erase("Content-Length");
  current_exchange->connection.set_write_deadline(Clock::now() + limits_.response);
}

ConnectionHandler::ConnectionHandler(ServerContext& context, ConnectionTable& connections,
                                     SharedText hello, const HttpLimits& limits)
    : connections_(connections), limits_(limits) {
  // The constructor of httplib::Server ignores SIGPIPE for the whole process and for the programs
  // that it starts. HttpConnection writes with MSG_NOSIGNAL, so the old action is restored.
  struct sigaction before {};
  ::sigaction(SIGPIPE, nullptr, &before);
  httplib_server_ = std::make_unique<HttplibServer>(context, connections, std::move(hello), limits);
  ::sigaction(SIGPIPE, &before, nullptr);
}

ConnectionHandler::~ConnectionHandler() = default;

void ConnectionHandler::serve(HttpConnection& connection) noexcept try {
  for (int number = 1;; ++number) {
    if (!connection.wait_readable(Clock::now() + limits_.idle)) return;
    if (!connections_.begin_request(connection.fd())) return;
    Exchange exchange{connection, {}};
    exchange.close_after = number == kMaxRequestsPerConnection;
    connection.set_write_deadline(Clock::now() + limits_.response);
    auto head = connection.read_head(Clock::now() + limits_.request, exchange.refusal);
    if (!head && !exchange.refusal) return;
    if (head) exchange.head = std::move(*head);
    if (!exchange.refusal) exchange.refusal = sanitize_head(exchange.head);
    if (!httplib_server_->process(exchange)) return;
    connections_.set_idle(connection.fd());
    if (exchange.close_after) break;
  }
  connection.linger(Clock::now() + limits_.linger);
} catch (...) {
  // Thread entry: an exception (such as std::bad_alloc) ends this connection, not the server.
  current_exchange = nullptr;
}

}  // namespace berth::serve
