// `berth serve`, put together: the thread that looks, those that answer, and two desks.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace berth::serve {

constexpr std::uint16_t kDefaultPort = 8417;

struct ServeOptions {
  std::string address = "127.0.0.1";
  std::uint16_t port = kDefaultPort;
  bool allow_changes = false;
  std::string token_file;
  std::string proxy;  // the name by which a proxy is reached
};

// The systemd unit that does the same.
Result<std::string> make_systemd_unit(const ServeOptions& options);

// Prints the URL and serves until a signal ends it: the process then exits at once. Returns only
// with an error, before it has begun.
Result<int> run_server(const ServeOptions& options);

}  // namespace berth::serve
