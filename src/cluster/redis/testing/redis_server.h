// Real servers for tests: redis-server and redis-sentinel, each in a temporary folder of its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cluster/redis/connection.h"
#include "cluster/redis/url.h"

namespace berth::testing {

inline bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// A folder that the destructor deletes, with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A server that accepts connections once the constructor has returned. It runs until kill() or the
// destructor, or until the process of the test exits.
class RedisServer {
 public:
  using Options = std::vector<std::string>;

  // Listens on a Unix socket only. Keeps no data on disk.
  explicit RedisServer(const Options& options = {}) : RedisServer(0, options) {}
  // Listens on a free port of 127.0.0.1, too.
  static RedisServer on_port(const Options& options = {});
  // A Sentinel that monitors `master` under the name "berth-test".
  static RedisServer sentinel_of(const RedisServer& master, const std::string& settings = {});

  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;
  ~RedisServer() { kill(); }

  // Sends SIGKILL, and waits until the server has exited.
  void kill();
  pid_t pid() const { return pid_; }
  std::uint16_t port() const { return port_; }

  RedisUrl url() const;                                       // of the Unix socket
  RedisUrl tcp_url() const;                                   // of the port
  RedisConnection connect() const { return connect(url()); }  // throws if that fails
  static RedisConnection connect(const RedisUrl& url);

 private:
  RedisServer(std::uint16_t port, const Options& options);
  RedisServer(std::uint16_t port, const RedisServer& master, const std::string& settings);
  void start(const std::vector<std::string>& command);

  TemporaryFolder folder_;
  std::uint16_t port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace berth::testing
