// Runs commands on another host by the user's ssh, with their keys, configuration and known hosts.
//
// The other host gets the command and its input, and nothing else: no agent, display, port or
// credentials are forwarded, whatever the user's configuration says. A host whose key is not known
// is refused. All commands of one Ssh object share one connection, which its destructor closes.
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/result.h"

namespace berth {

constexpr int kSshFailed = 255;  // the exit code of ssh if ssh itself fails

// The arguments as one command line, quoted for the shell of the other host.
std::string quote_command(const std::vector<std::string>& arguments);

// A command line that runs `script` by sh with the arguments `words`, whatever the login shell is.
std::string shell_command(const std::string& script, const std::vector<std::string>& words);

// The beginning of a script that runs `berth`. Many non-interactive shells do not search the folder
// into which pip installs programs.
constexpr const char* kFindBerthScript =
    R"({ PATH="$PATH:$HOME/.local/bin"; command -v berth >/dev/null || )"
    R"({ echo "berth is not in the PATH there" >&2; exit 1; }; })";

class Ssh {
 public:
  // `mask` is the signal mask of the processes that it starts.
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
  // When run() stops waiting. run() calls `is_interrupted` each time `interrupt_fd` is readable,
  // and the function must then read from it.
  struct RunLimits {
    std::chrono::milliseconds timeout{60'000};
    int interrupt_fd = -1;
    std::function<bool()> is_interrupted{};
  };

  // Runs a command to its end. It reads `input`; up to 64 KiB of its output, and of its errors, are
  // kept. Exit code 255: ssh itself has failed, and `errors` says why. An Error: ssh could not be
  // started, succeeded without having read all of its input, or was killed at a limit.
  Result<CommandOutput> run(const std::string& command, const std::string& input,
                            const RunLimits& limits) const;

  // Starts a command with this process's own input, output and terminal, and returns the PID of
  // ssh, which the caller waits for. The kernel kills ssh when this process exits. ssh ignores
  // signals of the keyboard: at a terminal it forwards the key; otherwise the caller forwards the
  // signal. Without `terminal`, the command has no terminal and an empty input.
  Result<pid_t> start(const std::string& command, bool terminal = true) const;

 private:
  Ssh(std::string host, std::string folder, const sigset_t& mask);
  std::vector<std::string> base_arguments() const;

  std::string host_;
  std::string folder_;  // of the connection's socket; empty once moved from
  sigset_t mask_;
};

}  // namespace berth
