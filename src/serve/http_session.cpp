// The one place where cpp-httplib is used; see speaker.h.
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
#define CPPHTTPLIB_REQUEST_URI_MAX_LENGTH (3 * berth::kLargestHead)
#define CPPHTTPLIB_HEADER_MAX_LENGTH (3 * berth::kLargestHead)
#define CPPHTTPLIB_USE_POLL  // select() knows no descriptor above 1023
#include <httplib.h>

namespace berth {
namespace {

using Clock = HttpConnection::Clock;

constexpr int kMostRequests = 100;  // on one connection

// One request and its answer.
struct Exchange {
  HttpConnection& connection;
  std::string head;
  std::optional<HttpRefusal> refusal{};
  HttpRequest request{};
  std::size_t body_size = 0;
  bool last = false;  // no other may follow on this connection
  bool answered = false;
};

// Of this thread: httplib's handlers are told of a request, but not of the stream it came from.
thread_local Exchange* current = nullptr;

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

void put_headers(httplib::Response& response, const HttpAnswer& answer) {
  response.status = answer.status;
  for (const auto& [name, value] : all_headers(answer)) response.set_header(name, value);
}

// The body is not copied: many send the same one.
void put(httplib::Response& response, const HttpAnswer& answer) {
  put_headers(response, answer);
  const std::string_view content = answer.content();
  if (content.empty() || answer.status == 304) return;
  response.set_content_provider(
      content.size(), answer.type,
      [body = answer.body, content](std::size_t offset, std::size_t size, httplib::DataSink& sink) {
        return sink.write(content.data() + offset, size);
      });
}

// As httplib has them.
void take(const httplib::Request& request, Exchange& exchange) {
  exchange.request.method = request.method;
  exchange.request.keep_alive = request.version == "HTTP/1.1";
  exchange.refusal =
      take_request(request.target, HttpHeaders(request.headers.begin(), request.headers.end()),
                   exchange.request, exchange.body_size);
}

HttpAnswer too_long() {
  return error_answer(503, "this takes too long; ask for less, or later");
}

}  // namespace

class HttpSession::Http : public httplib::Server {
 public:
  Http(ServerContext& counter, Clients& clients, SharedText hello, const HttpLimits& limits);

  // False if the connection is of no more use.
  bool process(Exchange& exchange);

 private:
  HandlerResponse answer(httplib::Response& response);
  HttpAnswer wait_for(const SharedPending& slip, HttpConnection& connection);
  void stream(httplib::Response& response, Exchange& exchange);
  bool send_news(Viewer& viewer, const Subscription& ear, HttpConnection& connection,
                 httplib::DataSink& sink);
  static HandlerResponse put_error(httplib::Response& response);
  void finish(httplib::Response& response) const;

  ServerContext& counter_;
  Clients& clients_;
  SharedText hello_;
  HttpLimits limits_;
};

HttpSession::Http::Http(ServerContext& counter, Clients& clients, SharedText hello, const HttpLimits& limits)
    : counter_(counter), clients_(clients), hello_(std::move(hello)), limits_(limits) {
  svr_sock_ = 0;  // any but INVALID_SOCKET, which would mean that it was stopped
  set_payload_max_length(kLargestBody);
  // Before the body is asked for.
  set_expect_100_continue_handler([](const httplib::Request&, httplib::Response& response) {
    if (current->refusal) response.status = current->refusal->status;
    return current->refusal ? response.status : 100;
  });
  set_pre_routing_handler(
      [this](const httplib::Request&, httplib::Response& response) { return answer(response); });
  set_error_handler(HandlerWithResponse(
      [](const httplib::Request&, httplib::Response& response) { return put_error(response); }));
  set_exception_handler(
      [](const httplib::Request&, httplib::Response& response, const std::exception_ptr&) {
        response = {};
        response.status = 500;
        current->last = true;
        current->answered = false;
      });
  set_post_routing_handler(
      [this](const httplib::Request&, httplib::Response& response) { finish(response); });
}

bool HttpSession::Http::process(Exchange& exchange) {
  current = &exchange;
  // What was refused already is answered by httplib as well: to a line that is none.
  constexpr std::string_view kNone = "\n";
  ExchangeStream stream(exchange.connection,
                        exchange.refusal ? kNone : std::string_view(exchange.head));
  bool ignored = false;
  const bool sent = process_request(stream, exchange.last, ignored,
                                    [&](httplib::Request& request) { take(request, exchange); });
  current = nullptr;
  return sent;
}

httplib::Server::HandlerResponse HttpSession::Http::answer(httplib::Response& response) {
  Exchange& exchange = *current;
  HttpConnection& connection = exchange.connection;
  if (!exchange.refusal) {
    connection.read(exchange.request.body, exchange.body_size, exchange.refusal);
  }
  if (exchange.refusal) {
    response.status = exchange.refusal->status;  // the rest is for put_error()
    return HandlerResponse::Handled;
  }
  clients_.complete(connection.fd());
  if (!exchange.request.keep_alive) exchange.last = true;
  exchange.answered = true;
  const auto reply = reply_to(exchange.request, connection.local(), counter_);
  if (reply.answer) {
    put(response, *reply.answer);
  } else if (reply.later) {
    put(response, wait_for(reply.later, connection));
  } else {
    stream(response, exchange);
  }
  return HandlerResponse::Handled;
}

// By a desk.
HttpAnswer HttpSession::Http::wait_for(const SharedPending& slip, HttpConnection& connection) {
  const Subscription ear(clients_, Subscription::Of::waiter, connection.fd());
  if (!ear) return full_answer();
  const auto until = Clock::now() + limits_.work;
  for (;;) {
    if (auto come = slip->answer()) return *std::move(come);
    const auto woken = connection.wait(ear.poke(), false, until);
    if (woken != HttpConnection::Woken::news) return too_long();  // also to nobody
  }
}

void HttpSession::Http::stream(httplib::Response& response, Exchange& exchange) {
  HttpConnection& connection = exchange.connection;
  const auto ear = std::make_shared<const Subscription>(clients_, Subscription::Of::viewer, connection.fd());
  exchange.last = true;
  if (!*ear) return put(response, full_answer());
  // The kernel would keep megabytes for each who does not read.
  constexpr int kBuffer = 128 << 10;
  ::setsockopt(connection.fd(), SOL_SOCKET, SO_SNDBUF, &kBuffer, sizeof kBuffer);
  HttpAnswer beginning;
  beginning.headers.emplace_back("X-Accel-Buffering", "no");  // nginx would keep it back
  put_headers(response, beginning);
  counter_.audience.came();
  const std::shared_ptr<ViewerCount> seat(&counter_.audience, [](ViewerCount* one) { one->left(); });
  // It has no length; it ends with the connection.
  response.set_content_provider("text/event-stream",
                                [this, viewer = Viewer(hello_), ear, seat, &connection](
                                    std::size_t, httplib::DataSink& sink) mutable {
                                  return send_news(viewer, *ear, connection, sink);
                                });
}

// What is new, or waits for it. False if the viewer has gone.
bool HttpSession::Http::send_news(Viewer& viewer, const Subscription& ear, HttpConnection& connection,
                              httplib::DataSink& sink) {
  const auto pieces = viewer.next(*counter_.board.current(), Clock::now());
  if (pieces.empty()) {
    const auto woken = connection.wait(ear.poke(), true, viewer.alive_until());
    return woken != HttpConnection::Woken::gone;
  }
  connection.write_until(Clock::now() + limits_.event);
  for (const SharedText& piece : pieces) {
    if (!sink.write(piece->data(), piece->size())) return false;
  }
  return true;
}

// httplib asks for it with every answer from 400 on, whether it is ours or its own.
httplib::Server::HandlerResponse HttpSession::Http::put_error(httplib::Response& response) {
  Exchange& exchange = *current;
  if (exchange.answered) return HandlerResponse::Unhandled;
  // Nobody knows where a next request would begin.
  exchange.last = true;
  exchange.answered = true;
  const int status = response.status;
  if (exchange.refusal) {
    put(response, error_answer(exchange.refusal->status, exchange.refusal->text));
  } else if (status < 500) {
    put(response, error_answer(status, "this is no HTTP request that is understood here"));
  } else {
    put(response, error_answer(status, "internal error"));
  }
  return HandlerResponse::Handled;
}

// The last step before an answer is written.
void HttpSession::Http::finish(httplib::Response& response) const {
  response.headers.erase("Accept-Ranges");
  response.headers.erase("Keep-Alive");
  response.headers.erase("Connection");
  response.set_header("Connection", current->last ? "close" : "keep-alive");
  if (response.status == 304) response.headers.erase("Content-Length");
  current->connection.write_until(Clock::now() + limits_.answer);
}

HttpSession::HttpSession(ServerContext& counter, Clients& clients, SharedText hello, const HttpLimits& limits)
    : clients_(clients), limits_(limits) {
  // httplib::Server has SIGPIPE ignored, for the whole program and those that it starts. We write
  // so that there is none.
  struct sigaction before {};
  ::sigaction(SIGPIPE, nullptr, &before);
  http_ = std::make_unique<Http>(counter, clients, std::move(hello), limits);
  ::sigaction(SIGPIPE, &before, nullptr);
}

HttpSession::~HttpSession() = default;

void HttpSession::serve(HttpConnection& connection) noexcept try {
  for (int number = 1;; ++number) {
    if (!connection.await(Clock::now() + limits_.idle)) return;
    if (!clients_.begin(connection.fd())) return;
    Exchange exchange{connection, {}};
    exchange.last = number == kMostRequests;
    connection.write_until(Clock::now() + limits_.answer);
    auto head = connection.take_head(Clock::now() + limits_.request, exchange.refusal);
    if (!head && !exchange.refusal) return;
    if (head) exchange.head = std::move(*head);
    if (!exchange.refusal) exchange.refusal = prepare_head(exchange.head);
    if (!http_->process(exchange)) return;
    clients_.rest(connection.fd());
    if (exchange.last) break;
  }
  connection.linger(Clock::now() + limits_.linger);
} catch (...) {
  // At the edge of a thread: memory ran out, say. The connection ends; the others go on.
  current = nullptr;
}

}  // namespace berth
