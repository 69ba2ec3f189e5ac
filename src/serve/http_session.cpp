// The one place where cpp-httplib is used; see http_session.h.
//
// Of httplib::Server only process_request() is used: it reads a request from a stream, has it
// answered, and writes the answer. Not its loop that accepts connections: that ends for good when
// one is gone before it was accepted (ECONNABORTED), and lets programs that another thread starts
// at that moment inherit the connection. Every request is answered before its routing, so that
// neither its regular expressions nor its readers of bodies, which have no bounds, come into play.
#include "serve/http_session.h"

#include <csignal>
#include <cstring>
#include <exception>
#include <sys/socket.h>
#include <utility>

#include "serve/stream.h"

// The head of a request is bounded before httplib sees it, which has a bound for each line only;
// there a '%' takes three bytes.
#define CPPHTTPLIB_REQUEST_URI_MAX_LENGTH (3 * berth::serve::kMaxHeadSize)
#define CPPHTTPLIB_HEADER_MAX_LENGTH (3 * berth::serve::kMaxHeadSize)
#define CPPHTTPLIB_USE_POLL  // select() knows no descriptor above 1023
#include <httplib.h>

namespace berth::serve {
namespace {

using Clock = HttpConnection::Clock;

constexpr int kMaxRequestsPerConnection = 100;  // on one connection

// One request and its answer.
struct Exchange {
  HttpConnection& connection;
  std::string head;
  std::optional<HttpRefusal> refusal{};
  HttpRequest request{};
  std::size_t body_size = 0;
  bool close_after = false;  // no other may follow on this connection
  bool has_response = false;
};

// Of this thread: httplib's handlers are told of a request, but not of the stream it came from.
thread_local Exchange* current_exchange = nullptr;

class ExchangeStream final : public httplib::Stream {
 public:
  ExchangeStream(HttpConnection& connection, std::string_view head)
      : connection_(connection), head_(head) {}

  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  // The head, and nothing else: what is behind it is read by us.
  ssize_t read(char* bytes, std::size_t size) override {
    const std::size_t count = std::min(size, head_.size());
    std::memcpy(bytes, head_.data(), count);
    head_.remove_prefix(count);
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char* bytes, std::size_t size) override {
    return connection_.write({bytes, size}) ? static_cast<ssize_t>(size) : -1;
  }
  // Nobody asks for them.
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

// The body is not copied: many send the same one.
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

// As httplib has them.
void store_request(const httplib::Request& request, Exchange& exchange) {
  exchange.request.method = request.method;
  exchange.request.keep_alive = request.version == "HTTP/1.1";
  exchange.refusal =
      parse_request(request.target, HttpHeaders(request.headers.begin(), request.headers.end()),
                    exchange.request, exchange.body_size);
}

HttpResponse timeout_response() {
  return error_response(503, "this takes too long; ask for less, or later");
}

}  // namespace

class HttpSession::HttplibServer : public httplib::Server {
 public:
  HttplibServer(ServerContext& context, ConnectionTable& connections, SharedText hello,
                const HttpLimits& limits);

  // False if the connection is of no more use.
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

HttpSession::HttplibServer::HttplibServer(ServerContext& context, ConnectionTable& connections,
                                          SharedText hello, const HttpLimits& limits)
    : context_(context), connections_(connections), hello_(std::move(hello)), limits_(limits) {
  svr_sock_ = 0;  // any but INVALID_SOCKET, which would mean that it was stopped
  set_payload_max_length(kMaxBodySize);
  // Before the body is asked for.
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

bool HttpSession::HttplibServer::process(Exchange& exchange) {
  current_exchange = &exchange;
  // What was refused already is answered by httplib as well: to a line that is none.
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

httplib::Server::HandlerResponse HttpSession::HttplibServer::respond(httplib::Response& response) {
  Exchange& exchange = *current_exchange;
  HttpConnection& connection = exchange.connection;
  if (!exchange.refusal) {
    connection.read_body(exchange.request.body, exchange.body_size, exchange.refusal);
  }
  if (exchange.refusal) {
    response.status = exchange.refusal->status;  // the rest is for set_error()
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

// By a desk.
HttpResponse HttpSession::HttplibServer::wait_for_response(const SharedPendingResponse& pending,
                                                           HttpConnection& connection) {
  const Subscription subscription(connections_, Subscription::Kind::waiter, connection.fd());
  if (!subscription) return too_many_connections_response();
  const auto deadline = Clock::now() + limits_.work;
  for (;;) {
    if (auto response_ready = pending->get()) return *std::move(response_ready);
    const auto wake_reason = connection.wait(subscription.wake_event(), false, deadline);
    if (wake_reason != HttpConnection::WakeReason::event)
      return timeout_response();  // also to nobody
  }
}

void HttpSession::HttplibServer::start_stream(httplib::Response& response, Exchange& exchange) {
  HttpConnection& connection = exchange.connection;
  const auto subscription = std::make_shared<const Subscription>(
      connections_, Subscription::Kind::viewer, connection.fd());
  exchange.close_after = true;
  if (!*subscription) return set_response(response, too_many_connections_response());
  // The kernel would keep megabytes for each who does not read.
  constexpr int kSendBufferSize = 128 << 10;
  ::setsockopt(connection.fd(), SOL_SOCKET, SO_SNDBUF, &kSendBufferSize, sizeof kSendBufferSize);
  HttpResponse stream_response;
  stream_response.headers.emplace_back("X-Accel-Buffering", "no");  // nginx would keep it back
  set_headers(response, stream_response);
  context_.viewer_count.add();
  const std::shared_ptr<ViewerCount> viewer_registration(
      &context_.viewer_count, [](ViewerCount* count) { count->remove(); });
  // It has no length; it ends with the connection.
  response.set_content_provider(
      "text/event-stream", [this, viewer = ViewerStream(hello_), subscription, viewer_registration,
                            &connection](std::size_t, httplib::DataSink& sink) mutable {
        return send_event(viewer, *subscription, connection, sink);
      });
}

// What is new, or waits for it. False if the viewer has gone.
bool HttpSession::HttplibServer::send_event(ViewerStream& viewer, const Subscription& subscription,
                                            HttpConnection& connection, httplib::DataSink& sink) {
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

// httplib asks for it with every answer from 400 on, whether it is ours or its own.
httplib::Server::HandlerResponse HttpSession::HttplibServer::set_error(
    httplib::Response& response) {
  Exchange& exchange = *current_exchange;
  if (exchange.has_response) return HandlerResponse::Unhandled;
  // Nobody knows where a next request would begin.
  exchange.close_after = true;
  exchange.has_response = true;
  const int status = response.status;
  if (exchange.refusal) {
    set_response(response, error_response(exchange.refusal->status, exchange.refusal->text));
  } else if (status < 500) {
    set_response(response,
                 error_response(status, "this is no HTTP request that is understood here"));
  } else {
    set_response(response, error_response(status, "internal error"));
  }
  return HandlerResponse::Handled;
}

// The last step before an answer is written.
void HttpSession::HttplibServer::finish_headers(httplib::Response& response) const {
  response.headers.erase("Accept-Ranges");
  response.headers.erase("Keep-Alive");
  response.headers.erase("Connection");
  response.set_header("Connection", current_exchange->close_after ? "close" : "keep-alive");
  if (response.status == 304) response.headers.erase("Content-Length");
  current_exchange->connection.set_write_deadline(Clock::now() + limits_.response);
}

HttpSession::HttpSession(ServerContext& context, ConnectionTable& connections, SharedText hello,
                         const HttpLimits& limits)
    : connections_(connections), limits_(limits) {
  // httplib::Server has SIGPIPE ignored, for the whole program and those that it starts. We write
  // so that there is none.
  struct sigaction before {};
  ::sigaction(SIGPIPE, nullptr, &before);
  httplib_server_ = std::make_unique<HttplibServer>(context, connections, std::move(hello), limits);
  ::sigaction(SIGPIPE, &before, nullptr);
}

HttpSession::~HttpSession() = default;

void HttpSession::serve(HttpConnection& connection) noexcept try {
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
  // At the edge of a thread: memory ran out, say. The connection ends; the others go on.
  current_exchange = nullptr;
}

}  // namespace berth::serve
