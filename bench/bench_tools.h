// What the programs of the benchmarks share.
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

#include "lease/acquire.h"
#include "devices/driver.h"

namespace berth::bench {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

[[noreturn]] inline void die(const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, why.c_str());
  std::exit(1);
}

inline int number(std::string_view text) {
  int value = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || rest != text.data() + text.size()) die("not a number");
  return value;
}

// Memory that processes which are forked later share.
inline void* shared_memory(std::size_t size) {
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) die("no memory");
  return memory;
}

inline std::unique_ptr<Probe> driver() {
  auto probe = open_driver();
  if (!probe) die(probe.error().message);
  return std::move(*probe);
}

inline Lease lease_of(Probe& probe) {
  auto lease = acquire(probe, {}, {});
  if (!lease || !*lease) die(lease ? "not granted" : lease.error().message);
  return std::move(**lease);
}

inline void give_back(Lease& lease) {
  if (!lease.release()) die("not released");
}

// A connection without berth: the yardstick.
class BareRedis {
 public:
  explicit BareRedis(int port) : redis_(redisConnect("127.0.0.1", port), redisFree) {
    if (!redis_ || redis_->err != 0) die("no Redis");
  }

  // The reply, if it is a text or a number.
  std::string command(const char* text) {
    auto* reply = static_cast<redisReply*>(redisCommand(redis_.get(), text));
    if (reply == nullptr) die("Redis does not answer");
    std::string said = reply->str != nullptr                ? std::string(reply->str, reply->len)
                       : reply->type == REDIS_REPLY_INTEGER ? std::to_string(reply->integer)
                                                            : "";
    freeReplyObject(reply);
    return said;
  }

 private:
  std::unique_ptr<redisContext, void (*)(redisContext*)> redis_;
};

}  // namespace berth::bench
