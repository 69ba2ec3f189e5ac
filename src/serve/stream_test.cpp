// Tests of the event stream, of WorkQueue, and of the server with many threads.
#include "serve/stream.h"

#include <arpa/inet.h>
#include <atomic>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>

#include "base/mutex.h"
#include "serve/server.h"

namespace berth::serve {
namespace {

using Clock = std::chrono::steady_clock;

std::string join_pieces(const EventPieces& pieces) {
  std::string all;
  for (const SharedText& piece : pieces) all += *piece;
  return all;
}

// The names of all events that the viewer gets for this snapshot.
std::string event_names(ViewerStream& viewer, const ServeSnapshot& snapshot,
                        Clock::time_point now = Clock::now()) {
  std::string all;
  for (;;) {
    const std::string event = join_pieces(viewer.next_event(snapshot, now));
    if (event.empty()) return all;
    EXPECT_TRUE(event.ends_with("\n\n"));
    const std::size_t from = event.starts_with("event: ") ? 7 : 0;
    all += event.substr(from, event.find('\n') - from) + " ";
  }
}

ServeSnapshot make_snapshot() {
  ServeSnapshot snapshot;
  snapshot.samples = share_text("{}");
  snapshot.sample = share_text("{}");
  snapshot.sample_version = 7;
  snapshot.stream_status = share_text("{}");
  snapshot.status_version = 3;
  snapshot.history_version = 5;
  return snapshot;
}

TEST(ViewerStream, SendsHelloAndThenChanges) {
  ViewerStream viewer(share_text("{}"));
  ServeSnapshot snapshot = make_snapshot();
  EXPECT_EQ(event_names(viewer, snapshot), "hello samples status ");
  EXPECT_EQ(event_names(viewer, snapshot), "");
  ++snapshot.status_version;
  EXPECT_EQ(event_names(viewer, snapshot), "status ");
  ++snapshot.sample_version;
  ++snapshot.history_version;
  EXPECT_EQ(event_names(viewer, snapshot), "sample history ");
}

TEST(ViewerStream, SendsAllSamplesAfterAMissedOne) {
  ViewerStream viewer(share_text("{}"));
  ServeSnapshot snapshot = make_snapshot();
  event_names(viewer, snapshot);
  snapshot.sample_version += 2;
  EXPECT_EQ(event_names(viewer, snapshot), "samples ");
}

TEST(ViewerStream, AStatusClearsAProblem) {
  ViewerStream viewer(share_text("{}"));
  ServeSnapshot snapshot = make_snapshot();
  event_names(viewer, snapshot);
  snapshot.problem = "away";
  ++snapshot.problem_version;
  EXPECT_EQ(event_names(viewer, snapshot), "problem ");
  ViewerStream late(share_text("{}"));
  EXPECT_EQ(event_names(late, snapshot), "hello samples status problem ");
  snapshot.problem.clear();
  ++snapshot.problem_version;
  ++snapshot.status_version;
  EXPECT_EQ(event_names(viewer, snapshot), "status ");
  EXPECT_EQ(event_names(late, snapshot), "status ");
}

TEST(ViewerStream, BeforeTheFirstPollSendsOnlyHello) {
  ViewerStream viewer(share_text("{}"));
  EXPECT_EQ(event_names(viewer, ServeSnapshot{}), "hello ");
}

TEST(ViewerStream, SendsKeepalives) {
  ViewerStream viewer(share_text("{}"));
  const ServeSnapshot snapshot = make_snapshot();
  const auto now = Clock::now();
  event_names(viewer, snapshot, now);
  EXPECT_EQ(event_names(viewer, snapshot, now + std::chrono::seconds(14)), "");
  EXPECT_EQ(event_names(viewer, snapshot, now + std::chrono::seconds(15)), ": alive ");
}

TEST(WorkQueue, IdenticalRequestsShareOneResult) {
  std::atomic<int> run_count{0};
  std::atomic<int> notified{0};
  std::atomic<bool> go{false};
  WorkQueue queue([&] { ++notified; });
  const auto work = [&] {
    while (!go) std::this_thread::yield();
    ++run_count;
    return json_response(std::string("x"));
  };
  const SharedPendingResponse one = queue.submit_once("a", work);
  const SharedPendingResponse same = queue.submit_once("a", work);
  const SharedPendingResponse other = queue.submit_once("b", work);
  EXPECT_EQ(one, same);
  EXPECT_NE(one, other);
  EXPECT_FALSE(one->get());
  go = true;
  while (notified < 2) std::this_thread::yield();
  EXPECT_EQ(run_count, 2);
  EXPECT_EQ(queue.submit_once("a", work), one);
  queue.invalidate();
  EXPECT_NE(queue.submit_once("a", work), one);
  while (notified < 3) std::this_thread::yield();
}

TEST(WorkQueue, SlowWorkDoesNotDelayOtherWork) {
  std::atomic<bool> go{false};
  WorkQueue queue([] {}, {.threads = 3, .max_result_age = {}, .max_results = 64});
  const auto slow = [&] {
    while (!go) std::this_thread::yield();
    return json_response(std::string("slow"));
  };
  const SharedPendingResponse one = queue.submit_once("a", slow);
  EXPECT_EQ(queue.submit_once("a", slow), one) << "shared while it is under way";
  const SharedPendingResponse two = queue.submit_once("b", slow);
  const SharedPendingResponse fast =
      queue.submit_once("c", [] { return json_response(std::string("fast")); });
  while (!fast->get()) std::this_thread::yield();
  EXPECT_FALSE(one->get() || two->get());
  EXPECT_NE(queue.submit_once("c", slow), fast) << "a result is not shared later";
  go = true;
  while (!one->get() || !two->get()) std::this_thread::yield();
}

TEST(ViewerStream, OnlyHoldersOfTheTokenSeeJobs) {
  ServeSnapshot snapshot = make_snapshot();
  snapshot.jobs = share_text("{}");
  snapshot.jobs_version = 1;
  ViewerStream other(share_text("{}"));
  EXPECT_EQ(event_names(other, snapshot).find("jobs"), std::string::npos);
  ViewerStream holder(share_text("{}"), true);
  EXPECT_EQ(event_names(holder, snapshot), "hello samples status jobs ");
  EXPECT_EQ(event_names(holder, snapshot), "");
  ++snapshot.jobs_version;
  EXPECT_EQ(event_names(holder, snapshot), "jobs ");
}

TEST(WorkQueue, RefusesWorkWhenFull) {
  std::atomic<bool> go{false};
  WorkQueue queue([] {});
  const auto work = [&] {
    while (!go) std::this_thread::yield();
    return json_response(std::string("x"));
  };
  std::size_t taken = 0;
  for (int i = 0; i < 100; ++i) taken += queue.submit_once(std::to_string(i), work) ? 1U : 0U;
  EXPECT_GE(taken, 16U);
  EXPECT_LE(taken, 17U);  // the thread may have taken the first one out of the queue
  go = true;
}

int connect_client(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

void send_text(int fd, std::string_view request_text) {
  EXPECT_EQ(::send(fd, request_text.data(), request_text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request_text.size()));
}

// Reads until the input contains `expected`, or until the server closes; returns the input.
std::string read_until(int fd, std::string_view expected) {
  std::string all;
  std::array<char, 4096> bytes{};
  while (all.find(expected) == std::string::npos) {
    const auto got = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (got <= 0) break;
    all.append(bytes.data(), static_cast<std::size_t>(got));
  }
  return all;
}

// One thread publishes snapshots, one accepts connections, two run work queues, and several clients
// follow the stream and send requests.
TEST(HttpServer, ServesManyClientsWhileSnapshotsChange) {
  AccessRules rules;
  rules.host_names = {"localhost"};
  const AccessControl access_control(rules);
  SnapshotPublisher publisher;
  ViewerActivity viewer_activity;
  HttpServer* notified_server = nullptr;
  Mutex server_mutex;
  const auto wake_subscriptions = [&] {
    const MutexLock lock(server_mutex);
    if (notified_server != nullptr) notified_server->wake_subscriptions();
  };
  WorkQueue history_queue(wake_subscriptions);
  WorkQueue change_queue(wake_subscriptions);
  WorkQueue end_queue(wake_subscriptions);
  WorkQueue job_output_queue(wake_subscriptions);
  ServerContext context{access_control, publisher, viewer_activity,  history_queue,
                        change_queue,   end_queue, job_output_queue, {}};
  auto listener = open_listener("127.0.0.1", 0);
  ASSERT_TRUE(listener) << listener.error().message;
  const std::uint16_t port = listener->port;
  HttpServer server(std::move(*listener), context, share_text("{}"));
  {
    const MutexLock lock(server_mutex);
    notified_server = &server;
  }
  const EventFd stop_event;
  std::thread server_thread([&] { server.run(stop_event.fd()); });
  std::atomic<bool> done{false};
  std::thread poller_thread([&] {
    ServeSnapshot snapshot = make_snapshot();
    while (!done) {
      ++snapshot.status_version;
      snapshot.stream_status =
          share_text("{\"number\": " + std::to_string(snapshot.status_version) + "}");
      snapshot.status = snapshot.stream_status;
      publisher.publish(std::make_shared<const ServeSnapshot>(snapshot));
      (void)viewer_activity.has_viewers(Clock::now());
      history_queue.invalidate();
      server.wake_subscriptions();
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([port] {
      const int fd = connect_client(port);
      send_text(fd, "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
      EXPECT_NE(read_until(fd, "event: status").find("event: hello"), std::string::npos);
      for (int n = 0; n < 20; ++n) {
        EXPECT_NE(read_until(fd, "event: status").find("event: status"), std::string::npos);
      }
      ::close(fd);
    });
    clients.emplace_back([port] {
      const int fd = connect_client(port);
      for (int n = 0; n < 20; ++n) {
        send_text(fd, "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n");
        EXPECT_NE(read_until(fd, "}").find("HTTP/1.1 "), std::string::npos);
        send_text(fd, "GET /api/v1/log?limit=0 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        EXPECT_NE(read_until(fd, "\"}").find("HTTP/1.1 400"), std::string::npos);
      }
      ::close(fd);
    });
  }
  for (std::thread& one : clients) one.join();
  done = true;
  poller_thread.join();
  stop_event.notify();
  server_thread.join();
  const MutexLock lock(server_mutex);
  notified_server = nullptr;
}

}  // namespace
}  // namespace berth::serve
