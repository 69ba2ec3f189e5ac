// `berth serve`: starts the status poller, the HTTP server and its two work queues.
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
  std::string proxy;  // public host name of a reverse proxy that authenticates users
};

// The text of a systemd unit that runs the server with these options.
Result<std::string> make_systemd_unit(const ServeOptions& options);

// Prints the URL and serves until SIGINT, SIGTERM or SIGHUP, on which the process exits at once.
// Returns only with an error: the options are invalid, or the port cannot be used.
Result<int> run_server(const ServeOptions& options);

}  // namespace berth::serve
