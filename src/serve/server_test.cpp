// Tests of the server over real connections: its limits, and clients that violate them.
#include "serve/server.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <csignal>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <vector>

namespace berth::serve {
namespace {

const std::string kHost = "Host: localhost\r\n";
const std::string kHealth = "GET /healthz HTTP/1.1\r\n" + kHost + "\r\n";
const std::string kEvents = "GET /api/v1/events HTTP/1.1\r\n" + kHost + "\r\n";

AccessRules test_rules() {
  AccessRules result;
  result.host_names = {"localhost"};
  return result;
}

// Runs a server with short timeouts.
class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() {
    auto listener = open_listener("127.0.0.1", 0);
    EXPECT_TRUE(listener) << listener.error().message;
    port_ = listener->port;
    HttpLimits limits;
    limits.idle = std::chrono::seconds(30);
    limits.request = std::chrono::milliseconds(300);
    limits.event = std::chrono::seconds(3);  // long enough for a reader under ThreadSanitizer
    limits.linger = std::chrono::milliseconds(100);
    server_ =
        std::make_unique<HttpServer>(std::move(*listener), context_, share_text("{}"), limits);
    thread_ = std::thread([this] { server_->run(stop_event_.fd()); });
  }
  ~HttpServerTest() override {
    stop_event_.notify();
    thread_.join();
    server_.reset();
  }

  void publish(const ServeSnapshot& snapshot) {
    publisher_.publish(std::make_shared<const ServeSnapshot>(snapshot));
    server_->wake_subscriptions();
  }

  UniqueFd connect_client() const {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }

  // Sends a request on a new connection; returns all that the server sends until it closes.
  std::string exchange(std::string_view request_text) const {
    const UniqueFd fd = connect_client();
    send_text(fd, request_text);
    return receive(fd);
  }

  static bool send_text(const UniqueFd& fd, std::string_view request_text) {
    return ::send(fd.get(), request_text.data(), request_text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(request_text.size());
  }

  // Reads until the input contains `until`, or until the server closes.
  static std::string receive(const UniqueFd& fd, std::string_view until = "\xff") {
    std::string all;
    std::array<char, 1 << 16> bytes{};
    std::size_t searched = 0;  // search only new input: some responses are large
    while (all.find(until, searched) == std::string::npos) {
      searched = all.size() - std::min(all.size(), until.size());
      const auto got = ::recv(fd.get(), bytes.data(), bytes.size(), 0);
      if (got <= 0) break;
      all.append(bytes.data(), static_cast<std::size_t>(got));
    }
    return all;
  }

  static std::size_t count(std::string_view text, std::string_view part) {
    std::size_t number = 0;
    for (auto at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) {
      ++number;
    }
    return number;
  }

  static bool has(std::string_view text, std::string_view part) { return count(text, part) > 0; }

  SnapshotPublisher publisher_;
  ViewerActivity viewer_activity_;
  const AccessControl access_control_{test_rules()};
  WorkQueue history_queue_{[this] { server_->wake_subscriptions(); }};
  WorkQueue change_queue_{[this] { server_->wake_subscriptions(); }};
  WorkQueue end_queue_{[this] { server_->wake_subscriptions(); }};
  WorkQueue job_output_queue_{[this] { server_->wake_subscriptions(); }};
  ServerContext context_{access_control_, publisher_, viewer_activity_,  history_queue_,
                         change_queue_,   end_queue_, job_output_queue_, {}};
  std::uint16_t port_ = 0;
  std::unique_ptr<HttpServer> server_;
  EventFd stop_event_;
  std::thread thread_;
};

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrderUpToTheLimit) {
  std::string many;
  for (int i = 0; i < 101; ++i) many += kHealth;
  const std::string all = exchange(many);
  EXPECT_EQ(count(all, "HTTP/1.1 200 OK\r\n"), 100U);
  EXPECT_EQ(count(all, "Connection: close\r\n"), 1U);
  EXPECT_EQ(count(all, "Connection: keep-alive\r\n"), 99U);
}

TEST_F(HttpServerTest, MalformedRequestsEndTheConnection) {
  for (const char* line : {"GET x HTTP/1.1\r\n", "GET /?a=% HTTP/1.1\r\n", "G(T / HTTP/1.1\r\n"}) {
    const std::string all = exchange(line + kHost + "\r\n" + kHealth);
    EXPECT_TRUE(all.starts_with("HTTP/1.1 400 ")) << all;
    EXPECT_TRUE(has(all, "{\"error\":")) << all;
    EXPECT_TRUE(has(all, "Content-Security-Policy: default-src 'none'")) << all;
    EXPECT_TRUE(has(all, "Cache-Control: no-store\r\n")) << all;
    EXPECT_EQ(count(all, "HTTP/1.1 "), 1U) << all;
  }
}

TEST_F(HttpServerTest, UnknownMethodsAreRefused) {
  const std::string all = exchange("BREW / HTTP/1.1\r\nConnection: close\r\n" + kHost + "\r\n");
  EXPECT_TRUE(all.starts_with("HTTP/1.1 405 ")) << all;
}

TEST_F(HttpServerTest, LimitsTheSizeOfAHead) {
  const std::string begin = "GET /healthz HTTP/1.1\r\nConnection: close\r\n" + kHost + "X: ";
  const std::string fits(kMaxHeadSize - begin.size() - 4, '%');
  EXPECT_TRUE(exchange(begin + fits + "\r\n\r\n").starts_with("HTTP/1.1 200 "));
  EXPECT_TRUE(exchange(begin + fits + "%\r\n\r\n").starts_with("HTTP/1.1 431 "));
  EXPECT_TRUE(exchange(begin + fits + fits).starts_with("HTTP/1.1 431 "));
}

TEST_F(HttpServerTest, IgnoresRangeHeaders) {
  std::string ranges = "bytes=0-0";
  while (ranges.size() < 15000) ranges += ",0-0";
  const std::string all = exchange("GET /healthz HTTP/1.1\r\nConnection: close\r\n" + kHost +
                                   "Range: " + ranges + "\r\n\r\n");
  EXPECT_TRUE(all.starts_with("HTTP/1.1 200 ")) << all;
}

TEST_F(HttpServerTest, ReadsBodiesOfAnyMethodUpToTheLimit) {
  const std::string get = "GET /healthz HTTP/1.1\r\n" + kHost;
  const std::string two =
      exchange(get + "Content-Length: 5\r\n\r\nhello" + get + "Connection: close\r\n\r\n");
  EXPECT_EQ(count(two, "HTTP/1.1 200 OK\r\n"), 2U) << two;
  const std::string no_length =
      exchange("POST /healthz HTTP/1.1\r\n" + kHost + "\r\n" + get + "Connection: close\r\n\r\n");
  EXPECT_TRUE(no_length.starts_with("HTTP/1.1 405 ")) << no_length;
  EXPECT_TRUE(has(no_length, "Allow: GET, HEAD\r\n")) << no_length;
  EXPECT_EQ(count(no_length, "HTTP/1.1 200 OK\r\n"), 1U) << no_length;
  const std::string large = "Expect: 100-continue\r\nContent-Length: ";
  EXPECT_TRUE(exchange(get + large + "65537\r\n\r\n").starts_with("HTTP/1.1 413 "));
  const UniqueFd fd = connect_client();
  send_text(fd, get + large + "5\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(has(receive(fd, "\r\n\r\n"), "HTTP/1.1 100 "));
  send_text(fd, "hello");
  EXPECT_TRUE(has(receive(fd), "HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, EndsSlowRequestsWhateverTheirPace) {
  const UniqueFd head = connect_client();
  send_text(head, "GET /healthz HTTP/1.1\r\n");
  std::thread dribble([&] {
    while (send_text(head, "X")) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  });
  const std::string reply =
      exchange("POST /api/v1/session HTTP/1.1\r\n" + kHost + "Content-Length: 9\r\n\r\n{");
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 408 ")) << reply;
  EXPECT_TRUE(receive(head).starts_with("HTTP/1.1 408 "));
  dribble.join();
}

TEST_F(HttpServerTest, AnswersAHalfClosedConnection) {
  for (const char* path : {"/healthz", "/api/v1/log?limit=0"}) {
    const UniqueFd fd = connect_client();
    send_text(fd, "GET " + std::string(path) + " HTTP/1.1\r\n" + kHost + "\r\n");
    ::shutdown(fd.get(), SHUT_WR);
    EXPECT_TRUE(receive(fd).starts_with("HTTP/1.1 ")) << path;
  }
}

TEST_F(HttpServerTest, NoticesThatAViewerDisconnected) {
  {
    const UniqueFd closes = connect_client();
    const UniqueFd half = connect_client();
    const UniqueFd speaks = connect_client();
    for (const UniqueFd* one : {&closes, &half, &speaks}) {
      send_text(*one, kEvents);
      EXPECT_TRUE(has(receive(*one, "event: hello"), "event: hello"));
    }
    EXPECT_EQ(viewer_activity_.viewers(), 3);
    ::shutdown(half.get(), SHUT_WR);
    send_text(speaks, "x");
    receive(half);  // until the server closes
    while (viewer_activity_.viewers() > 1) std::this_thread::yield();
  }
  while (viewer_activity_.viewers() > 0) std::this_thread::yield();
}

TEST_F(HttpServerTest, DropsAViewerThatNeverReads) {
  const UniqueFd mute = connect_client();
  const UniqueFd viewer = connect_client();
  send_text(mute, kEvents);
  send_text(viewer, kEvents);
  receive(viewer, "event: hello");
  while (viewer_activity_.viewers() < 2) std::this_thread::yield();
  ServeSnapshot snapshot;
  // More than the socket buffers of both sides can hold.
  const std::string large(8 << 20, 'x');
  snapshot.stream_status = share_text(large + "end");
  snapshot.status_version = 1;
  publish(snapshot);
  EXPECT_TRUE(receive(viewer, "end\n\n").ends_with("end\n\n"));
  while (viewer_activity_.viewers() > 1) std::this_thread::yield();
  snapshot.stream_status = share_text("more");
  snapshot.status_version = 2;
  publish(snapshot);
  EXPECT_TRUE(has(receive(viewer, "more"), "data: more"));
}

TEST_F(HttpServerTest, RejectsAConnectionWhenNoneCanBeEvicted) {
  std::vector<UniqueFd> all;
  for (std::size_t i = 0; i < kMaxConnections; ++i) {
    all.push_back(connect_client());
    send_text(all.back(), kHealth);
    EXPECT_TRUE(has(receive(all.back(), "}"), " 200 "));
  }
  // All are idle, so one of them is evicted.
  EXPECT_TRUE(exchange("GET /healthz HTTP/1.0\r\n" + kHost + "\r\n").starts_with("HTTP/1.1 200 "));
  // The connection that was idle longest is evicted. That need not be the first one: each thread
  // calls set_idle() after the client has the response.
  const auto gone = std::find_if(all.begin(), all.end(), [](const UniqueFd& fd) {
    pollfd entry{fd.get(), POLLIN, 0};
    return ::poll(&entry, 1, 0) > 0;
  });
  ASSERT_NE(gone, all.end());
  EXPECT_EQ(receive(*gone), "");
  all.erase(gone);
  for (std::size_t i = 0; i < kMaxViewers; ++i) {
    send_text(all[i], kEvents);
    EXPECT_TRUE(has(receive(all[i], "event: hello"), "event: hello"));
  }
  EXPECT_TRUE(has(exchange(kEvents), "HTTP/1.1 503 "));
  EXPECT_TRUE(exchange("GET /healthz HTTP/1.0\r\n" + kHost + "\r\n").starts_with("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, KeepsTheSigpipeDisposition) {
  struct sigaction now {};
  ::sigaction(SIGPIPE, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

}  // namespace
}  // namespace berth::serve
