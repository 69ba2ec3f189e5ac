// Tests of the live stream: what a viewer is sent, in which order; and pictures, desks and server
// with many threads at once, for ThreadSanitizer.
#include "serve/stream.h"

#include <arpa/inet.h>
#include <atomic>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>

#include "base/mutex.h"
#include "serve/server.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;

SharedText text(std::string value) {
  return std::make_shared<const std::string>(std::move(value));
}

std::string joined(const StreamPieces& pieces) {
  std::string all;
  for (const SharedText& piece : pieces) all += *piece;
  return all;
}

// The names of all that he is sent for this picture.
std::string names(Viewer& viewer, const ServeSnapshot& picture, Clock::time_point now = Clock::now()) {
  std::string all;
  for (;;) {
    const std::string event = joined(viewer.next(picture, now));
    if (event.empty()) return all;
    EXPECT_TRUE(event.ends_with("\n\n"));
    const std::size_t from = event.starts_with("event: ") ? 7 : 0;
    all += event.substr(from, event.find('\n') - from) + " ";
  }
}

ServeSnapshot first_picture() {
  ServeSnapshot picture;
  picture.samples = text("{}");
  picture.sample = text("{}");
  picture.sample_number = 7;
  picture.stream_status = text("{}");
  picture.status_number = 3;
  picture.history_number = 5;
  return picture;
}

TEST(Viewer, IsGreetedAndThenSentWhatIsNew) {
  Viewer viewer(text("{}"));
  ServeSnapshot picture = first_picture();
  EXPECT_EQ(names(viewer, picture), "hello samples status ");
  EXPECT_EQ(names(viewer, picture), "");
  ++picture.status_number;
  EXPECT_EQ(names(viewer, picture), "status ");
  ++picture.sample_number;
  ++picture.history_number;
  EXPECT_EQ(names(viewer, picture), "sample history ");
}

TEST(Viewer, WhoMissedSamplesIsSentAllOfThem) {
  Viewer viewer(text("{}"));
  ServeSnapshot picture = first_picture();
  names(viewer, picture);
  picture.sample_number += 2;
  EXPECT_EQ(names(viewer, picture), "samples ");
}

TEST(Viewer, AStatusHealsAProblemAndNoneComesBefore) {
  Viewer viewer(text("{}"));
  ServeSnapshot picture = first_picture();
  names(viewer, picture);
  picture.problem = "away";
  ++picture.problem_number;
  EXPECT_EQ(names(viewer, picture), "problem ");
  Viewer late(text("{}"));
  EXPECT_EQ(names(late, picture), "hello samples status problem ");
  picture.problem.clear();
  ++picture.problem_number;
  ++picture.status_number;
  EXPECT_EQ(names(viewer, picture), "status ");
  EXPECT_EQ(names(late, picture), "status ");
}

TEST(Viewer, BeforeTheFirstLookThereIsOnlyAGreeting) {
  Viewer viewer(text("{}"));
  EXPECT_EQ(names(viewer, ServeSnapshot{}), "hello ");
}

TEST(Viewer, IsToldNowAndThenThatWeLive) {
  Viewer viewer(text("{}"));
  const ServeSnapshot picture = first_picture();
  const auto now = Clock::now();
  names(viewer, picture, now);
  EXPECT_EQ(names(viewer, picture, now + std::chrono::seconds(14)), "");
  EXPECT_EQ(names(viewer, picture, now + std::chrono::seconds(15)), ": alive ");
}

TEST(WorkQueue, TheSameQuestionIsAnsweredOnce) {
  std::atomic<int> asked{0};
  std::atomic<int> told{0};
  std::atomic<bool> go{false};
  WorkQueue desk([&] { ++told; });
  const auto work = [&] {
    while (!go) std::this_thread::yield();
    ++asked;
    return json_answer(std::string("x"));
  };
  const SharedPending one = desk.ask("a", work);
  const SharedPending same = desk.ask("a", work);
  const SharedPending other = desk.ask("b", work);
  EXPECT_EQ(one, same);
  EXPECT_NE(one, other);
  EXPECT_FALSE(one->answer());
  go = true;
  while (told < 2) std::this_thread::yield();
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(desk.ask("a", work), one);
  desk.outdate();
  EXPECT_NE(desk.ask("a", work), one);
  while (told < 3) std::this_thread::yield();
}

TEST(WorkQueue, NoMoreIsTakenThanCanBeDone) {
  std::atomic<bool> go{false};
  WorkQueue desk([] {});
  const auto work = [&] {
    while (!go) std::this_thread::yield();
    return json_answer(std::string("x"));
  };
  std::size_t taken = 0;
  for (int i = 0; i < 100; ++i) taken += desk.ask(std::to_string(i), work) ? 1U : 0U;
  EXPECT_GE(taken, 16U);
  EXPECT_LE(taken, 17U);  // one may be at hand already
  go = true;
}

int connected(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

void say(int fd, std::string_view words) {
  EXPECT_EQ(::send(fd, words.data(), words.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(words.size()));
}

// Reads until the text has come; all that has.
std::string read_until(int fd, std::string_view wanted) {
  std::string all;
  std::array<char, 4096> bytes{};
  while (all.find(wanted) == std::string::npos) {
    const auto got = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (got <= 0) break;
    all.append(bytes.data(), static_cast<std::size_t>(got));
  }
  return all;
}

// One thread hangs up pictures, one serves, two work at desks, and several watch and ask.
TEST(HttpServer, ServesManyWhilePicturesChange) {
  GuardRules rules;
  rules.names = {"localhost"};
  const Guard guard(rules);
  SnapshotPublisher board;
  ViewerCount audience;
  HttpServer* told = nullptr;
  Mutex told_mutex;
  const auto poke = [&] {
    const MutexLock lock(told_mutex);
    if (told != nullptr) told->poke();
  };
  WorkQueue archive(poke);
  WorkQueue changes(poke);
  ServerContext counter{guard, board, audience, archive, changes, {}};
  auto listener = listen_at("127.0.0.1", 0);
  ASSERT_TRUE(listener) << listener.error().message;
  const std::uint16_t port = listener->port;
  HttpServer server(std::move(*listener), counter, text("{}"));
  {
    const MutexLock lock(told_mutex);
    told = &server;
  }
  const EventFd end;
  std::thread serving([&] { server.run(end.fd()); });
  std::atomic<bool> done{false};
  std::thread looking([&] {
    ServeSnapshot picture = first_picture();
    while (!done) {
      ++picture.status_number;
      picture.stream_status = text("{\"number\": " + std::to_string(picture.status_number) + "}");
      picture.status = picture.stream_status;
      board.publish(std::make_shared<const ServeSnapshot>(picture));
      (void)audience.anybody(Clock::now());
      archive.outdate();
      server.poke();
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> people;
  for (int i = 0; i < 4; ++i) {
    people.emplace_back([port] {
      const int fd = connected(port);
      say(fd, "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
      EXPECT_NE(read_until(fd, "event: status").find("event: hello"), std::string::npos);
      for (int n = 0; n < 20; ++n) {
        EXPECT_NE(read_until(fd, "event: status").find("event: status"), std::string::npos);
      }
      ::close(fd);
    });
    people.emplace_back([port] {
      const int fd = connected(port);
      for (int n = 0; n < 20; ++n) {
        say(fd, "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n");
        EXPECT_NE(read_until(fd, "}").find("HTTP/1.1 "), std::string::npos);
        say(fd, "GET /api/v1/log?limit=0 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        EXPECT_NE(read_until(fd, "\"}").find("HTTP/1.1 400"), std::string::npos);
      }
      ::close(fd);
    });
  }
  for (std::thread& one : people) one.join();
  done = true;
  looking.join();
  end();
  serving.join();
  const MutexLock lock(told_mutex);
  told = nullptr;
}

}  // namespace
}  // namespace berth
