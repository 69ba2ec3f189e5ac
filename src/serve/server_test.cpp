// Tests of the server over real connections: its bounds, and that it outlives whoever keeps to
// none.
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

namespace berth {
namespace {

const std::string kHost = "Host: localhost\r\n";
const std::string kHealth = "GET /healthz HTTP/1.1\r\n" + kHost + "\r\n";
const std::string kEvents = "GET /api/v1/events HTTP/1.1\r\n" + kHost + "\r\n";

SharedText text(std::string value) {
  return std::make_shared<const std::string>(std::move(value));
}

GuardRules rules() {
  GuardRules result;
  result.names = {"localhost"};
  return result;
}

// A server of the test's own, with little patience.
class Served : public testing::Test {
 protected:
  Served() {
    auto listener = listen_at("127.0.0.1", 0);
    EXPECT_TRUE(listener) << listener.error().message;
    port_ = listener->port;
    HttpLimits limits;
    limits.idle = std::chrono::seconds(30);
    limits.request = std::chrono::milliseconds(300);
    limits.event = std::chrono::seconds(3);  // enough for who reads, also under ThreadSanitizer
    limits.linger = std::chrono::milliseconds(100);
    server_ = std::make_unique<HttpServer>(std::move(*listener), counter_, text("{}"), limits);
    thread_ = std::thread([this] { server_->run(end_.fd()); });
  }
  ~Served() override {
    end_();
    thread_.join();
    server_.reset();
  }

  void publish(const ServeSnapshot& picture) {
    board_.publish(std::make_shared<const ServeSnapshot>(picture));
    server_->poke();
  }

  UniqueFd connected() const {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }

  // All that comes back until the other side closes.
  std::string said_to(std::string_view words) const {
    const UniqueFd fd = connected();
    say(fd, words);
    return heard(fd);
  }

  static bool say(const UniqueFd& fd, std::string_view words) {
    return ::send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(words.size());
  }

  // Until the text has come, or all.
  static std::string heard(const UniqueFd& fd, std::string_view until = "\xff") {
    std::string all;
    std::array<char, 1 << 16> bytes{};
    std::size_t searched = 0;  // only what is new: some of it is large
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

  SnapshotPublisher board_;
  ViewerCount audience_;
  const Guard guard_{rules()};
  WorkQueue archive_{[this] { server_->poke(); }};
  WorkQueue changes_{[this] { server_->poke(); }};
  ServerContext counter_{guard_, board_, audience_, archive_, changes_, {}};
  std::uint16_t port_ = 0;
  std::unique_ptr<HttpServer> server_;
  EventFd end_;
  std::thread thread_;
};

TEST_F(Served, RequestsAtOnceAreAnsweredInOrderAndNotWithoutEnd) {
  std::string many;
  for (int i = 0; i < 101; ++i) many += kHealth;
  const std::string all = said_to(many);
  EXPECT_EQ(count(all, "HTTP/1.1 200 OK\r\n"), 100U);
  EXPECT_EQ(count(all, "Connection: close\r\n"), 1U);
  EXPECT_EQ(count(all, "Connection: keep-alive\r\n"), 99U);
}

TEST_F(Served, HttplibsOwnAnswersLookLikeOurs) {
  for (const char* line :
       {"BREW / HTTP/1.1\r\n", "GET /?a?b?c HTTP/1.1\r\n", "GET x HTTP/1.1\r\n"}) {
    const std::string all = said_to(line + kHost + "\r\n" + kHealth);
    EXPECT_TRUE(all.starts_with("HTTP/1.1 400 ")) << all;
    EXPECT_TRUE(has(all, "{\"error\":")) << all;
    EXPECT_TRUE(has(all, "Content-Security-Policy: default-src 'none'")) << all;
    EXPECT_TRUE(has(all, "Cache-Control: no-store\r\n")) << all;
    EXPECT_EQ(count(all, "HTTP/1.1 "), 1U) << all;
  }
}

TEST_F(Served, AHeadHasABound) {
  const std::string begin = "GET /healthz HTTP/1.1\r\nConnection: close\r\n" + kHost + "X: ";
  const std::string fits(kLargestHead - begin.size() - 4, '%');
  EXPECT_TRUE(said_to(begin + fits + "\r\n\r\n").starts_with("HTTP/1.1 200 "));
  EXPECT_TRUE(said_to(begin + fits + "%\r\n\r\n").starts_with("HTTP/1.1 431 "));
  EXPECT_TRUE(said_to(begin + fits + fits).starts_with("HTTP/1.1 431 "));
}

TEST_F(Served, ARangeIsNotLookedAt) {
  std::string ranges = "bytes=0-0";
  while (ranges.size() < 15000) ranges += ",0-0";
  const std::string all = said_to("GET /healthz HTTP/1.1\r\nConnection: close\r\n" + kHost +
                                  "Range: " + ranges + "\r\n\r\n");
  EXPECT_TRUE(all.starts_with("HTTP/1.1 200 ")) << all;
}

TEST_F(Served, ABodyIsReadWhateverTheMethodAndOnlyIfItFits) {
  const std::string get = "GET /healthz HTTP/1.1\r\n" + kHost;
  const std::string two =
      said_to(get + "Content-Length: 5\r\n\r\nhello" + get + "Connection: close\r\n\r\n");
  EXPECT_EQ(count(two, "HTTP/1.1 200 OK\r\n"), 2U) << two;
  const std::string no_length =
      said_to("POST /healthz HTTP/1.1\r\n" + kHost + "\r\n" + get + "Connection: close\r\n\r\n");
  EXPECT_TRUE(no_length.starts_with("HTTP/1.1 405 ")) << no_length;
  EXPECT_TRUE(has(no_length, "Allow: GET, HEAD\r\n")) << no_length;
  EXPECT_EQ(count(no_length, "HTTP/1.1 200 OK\r\n"), 1U) << no_length;
  const std::string large = "Expect: 100-continue\r\nContent-Length: ";
  EXPECT_TRUE(said_to(get + large + "65537\r\n\r\n").starts_with("HTTP/1.1 413 "));
  const UniqueFd fd = connected();
  say(fd, get + large + "5\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(has(heard(fd, "\r\n\r\n"), "HTTP/1.1 100 "));
  say(fd, "hello");
  EXPECT_TRUE(has(heard(fd), "HTTP/1.1 200 "));
}

TEST_F(Served, ARequestThatTakesTooLongIsEndedWhateverItsPace) {
  const UniqueFd head = connected();
  say(head, "GET /healthz HTTP/1.1\r\n");
  std::thread dribble([&] {
    while (say(head, "X")) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  });
  const std::string said =
      said_to("POST /api/v1/session HTTP/1.1\r\n" + kHost + "Content-Length: 9\r\n\r\n{");
  EXPECT_TRUE(said.starts_with("HTTP/1.1 408 ")) << said;
  EXPECT_TRUE(heard(head).starts_with("HTTP/1.1 408 "));
  dribble.join();
}

TEST_F(Served, WhoClosesHisHalfIsAnswered) {
  for (const char* path : {"/healthz", "/api/v1/log?limit=0"}) {
    const UniqueFd fd = connected();
    say(fd, "GET " + std::string(path) + " HTTP/1.1\r\n" + kHost + "\r\n");
    ::shutdown(fd.get(), SHUT_WR);
    EXPECT_TRUE(heard(fd).starts_with("HTTP/1.1 ")) << path;
  }
}

TEST_F(Served, AViewerWhoGoesIsNoticedWithoutNews) {
  {
    const UniqueFd closes = connected();
    const UniqueFd half = connected();
    const UniqueFd speaks = connected();
    for (const UniqueFd* one : {&closes, &half, &speaks}) {
      say(*one, kEvents);
      EXPECT_TRUE(has(heard(*one, "event: hello"), "event: hello"));
    }
    EXPECT_EQ(audience_.viewers(), 3);
    ::shutdown(half.get(), SHUT_WR);
    say(speaks, "x");
    heard(half);  // to its end
    while (audience_.viewers() > 1) std::this_thread::yield();
  }
  while (audience_.viewers() > 0) std::this_thread::yield();
}

TEST_F(Served, AViewerWhoNeverReadsIsDropped) {
  const UniqueFd mute = connected();
  const UniqueFd viewer = connected();
  say(mute, kEvents);
  say(viewer, kEvents);
  heard(viewer, "event: hello");
  while (audience_.viewers() < 2) std::this_thread::yield();
  ServeSnapshot picture;
  // More than both sides' kernels keep for him.
  const std::string large(8 << 20, 'x');
  picture.stream_status = text(large + "end");
  picture.status_number = 1;
  publish(picture);
  EXPECT_TRUE(heard(viewer, "end\n\n").ends_with("end\n\n"));
  while (audience_.viewers() > 1) std::this_thread::yield();
  picture.stream_status = text("more");
  picture.status_number = 2;
  publish(picture);
  EXPECT_TRUE(has(heard(viewer, "more"), "data: more"));
}

TEST_F(Served, OneTooManyIsTurnedAwayUnlessSomebodyGivesWay) {
  std::vector<UniqueFd> all;
  for (std::size_t i = 0; i < kMostConnections; ++i) {
    all.push_back(connected());
    say(all.back(), kHealth);
    EXPECT_TRUE(has(heard(all.back(), "}"), " 200 "));
  }
  // All are kept for a next request.
  EXPECT_TRUE(said_to("GET /healthz HTTP/1.0\r\n" + kHost + "\r\n").starts_with("HTTP/1.1 200 "));
  // The one that has waited longest gave way. That need not be the first: each thread notes the end
  // of its answer after the client has it.
  const auto gone = std::find_if(all.begin(), all.end(), [](const UniqueFd& fd) {
    pollfd entry{fd.get(), POLLIN, 0};
    return ::poll(&entry, 1, 0) > 0;
  });
  ASSERT_NE(gone, all.end());
  EXPECT_EQ(heard(*gone), "");
  all.erase(gone);
  for (std::size_t i = 0; i < kMostViewers; ++i) {
    say(all[i], kEvents);
    EXPECT_TRUE(has(heard(all[i], "event: hello"), "event: hello"));
  }
  EXPECT_TRUE(has(said_to(kEvents), "HTTP/1.1 503 "));
  EXPECT_TRUE(said_to("GET /healthz HTTP/1.0\r\n" + kHost + "\r\n").starts_with("HTTP/1.1 200 "));
}

TEST_F(Served, TheProgramsSigpipeIsLeftAlone) {
  struct sigaction now {};
  ::sigaction(SIGPIPE, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

}  // namespace
}  // namespace berth
