// A server on a Unix socket that is not Redis: it sends each client what the test wants.
#pragma once

#include <array>
#include <fmt/format.h>
#include <functional>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <utility>

#include "base/unique_fd.h"
#include "cluster/redis/testing/redis_server.h"

namespace berth::testing {

class FakeServer {
 public:
  // Makes the response from the first bytes that a client sent.
  using Responder = std::function<std::string(const std::string& received)>;

  explicit FakeServer(Responder responder) : responder_(std::move(responder)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = url().socket;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    (void)::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    ::listen(listener_.get(), 8);
    thread_ = std::thread([this] { serve(); });
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;
  ~FakeServer() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }

  RedisUrl url() const {
    RedisUrl url;
    url.socket = fmt::format("{}/fake.sock", folder_.path());
    return url;
  }

 private:
  // Serves one client after the other, each until it disconnects.
  void serve() {
    for (;;) {
      const UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client) return;
      std::array<char, 4096> received{};
      ssize_t size = ::recv(client.get(), received.data(), received.size(), 0);
      if (size <= 0) continue;
      const std::string response = responder_({received.data(), static_cast<std::size_t>(size)});
      ::send(client.get(), response.data(), response.size(), MSG_NOSIGNAL);
      while (size > 0) size = ::recv(client.get(), received.data(), received.size(), 0);
    }
  }

  TemporaryFolder folder_;
  Responder responder_;
  UniqueFd listener_{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::thread thread_;
};

}  // namespace berth::testing
