// Commands on another host, by the user's own ssh: their keys, their configuration, their known
// hosts.
//
// The other host gets the command and its input, and nothing else of this one: no agent, display,
// port or credentials are forwarded, whatever the configuration says. A host whose key is not known
// is refused. All commands of one Ssh share one connection, which ends with it.
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/result.h"

namespace berth {

// Quoted for the shell at the other end.
std::string quote_command(const std::vector<std::string>& arguments);

class Ssh {
 public:
  // `mask` is what its processes are to have blocked.
  static Result<Ssh> create(std::string host, const sigset_t& mask);
  Ssh(Ssh&& other) noexcept;
  Ssh& operator=(Ssh&&) = delete;
  ~Ssh();

  const std::string& host() const { return host_; }

  struct CommandOutput {
    int code = 0;
    std::string output;
    std::string errors;
  };
  // When run() stops waiting. `is_interrupted` is called each time `interrupt_fd` can be read, and
  // must then read from it.
  struct RunLimits {
    std::chrono::milliseconds timeout{60'000};
    int interrupt_fd = -1;
    std::function<bool()> is_interrupted{};
  };

  // Runs a command to its end, which gets `input` and whose output is kept up to 64 KiB. 255: ssh
  // itself has failed, and `errors` says why. An Error: it could not be started, has succeeded
  // without having read all of its input, or was killed at a limit.
  Result<CommandOutput> run(const std::string& command, const std::string& input,
                            const RunLimits& limits) const;

  // Starts a command with this process's own input, output and terminal. It ends when this process
  // does. Signals of the keyboard do not reach ssh itself: at a terminal it passes the key on;
  // elsewhere its caller passes the signal on.
  Result<pid_t> start(const std::string& command) const;

 private:
  Ssh(std::string host, std::string folder, const sigset_t& mask);
  std::vector<std::string> base_arguments() const;

  std::string host_;
  std::string folder_;  // of the connection's socket
  sigset_t mask_;
};

}  // namespace berth
