// Helpers that the benchmark programs share.
#pragma once

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <hiredis/hiredis.h>
#include <memory>
#include <string>
#include <string_view>
#include <sys/mman.h>

#include "devices/driver.h"
#include "lease/acquire.h"

namespace berth::bench {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

[[noreturn]] inline void die(const std::string& reason) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, reason.c_str());
  std::exit(1);
}

inline int parse_number(std::string_view text) {
  int value = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || rest != text.data() + text.size())
    die(std::string(text) + " is not a number");
  return value;
}

// Memory that this process shares with the processes that it forks later.
inline void* shared_memory(std::size_t size) {
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) die("cannot allocate shared memory");
  return memory;
}

inline std::unique_ptr<Probe> open_probe() {
  auto probe = open_driver();
  if (!probe) die(probe.error().message);
  return std::move(*probe);
}

inline Lease acquire_lease(Probe& probe) {
  auto lease = acquire(probe, {}, {});
  if (!lease || !*lease) die(lease ? "the lease was not granted" : lease.error().message);
  return std::move(**lease);
}

inline void release_lease(Lease& lease) {
  if (!lease.release()) die("the lease was not released");
}

// A Redis connection without berth: the yardstick.
class BareRedis {
 public:
  explicit BareRedis(int port) : redis_(redisConnect("127.0.0.1", port), redisFree) {
    if (!redis_ || redis_->err != 0) die("cannot connect to Redis on port " + std::to_string(port));
  }

  // The reply, if it is a text or a number; else empty.
  std::string command(const char* command_text) {
    auto* reply = static_cast<redisReply*>(redisCommand(redis_.get(), command_text));
    if (reply == nullptr) die("no reply from Redis");
    std::string text = reply->str != nullptr                ? std::string(reply->str, reply->len)
                       : reply->type == REDIS_REPLY_INTEGER ? std::to_string(reply->integer)
                                                            : "";
    freeReplyObject(reply);
    return text;
  }

 private:
  std::unique_ptr<redisContext, void (*)(redisContext*)> redis_;
};

}  // namespace berth::bench
