// Finds the host of a job and runs a command there; see forward.h.
#include "cluster/remote/forward.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>

#include "base/environment.h"
#include "base/process.h"
#include "base/signals.h"
#include "base/terminal.h"
#include "cluster/remote/permitted_hosts.h"
#include "cluster/remote/ssh.h"
#include "harbour/location.h"
#include "run/job.h"
#include "run/other_hosts.h"

namespace berth {
namespace {

// Returns the exit code of ssh, or 128+N if signal N ended the wait.
int wait_for_ssh(pid_t child, SignalQueue& signals) {
  const UniqueFd process = open_process(child);
  for (;;) {
    int status = kUnknownStatus;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child || (ended < 0 && errno == ECHILD)) return exit_code(status);
    std::array<pollfd, 2> entries{{{signals.fd(), POLLIN, 0}, {process.get(), POLLIN, 0}}};
    ::poll(entries.data(), entries.size(), -1);
    while (const auto signal = signals.next()) {
      const auto number = static_cast<int>(signal->ssi_signo);
      if (number == SIGCHLD) continue;
      ::kill(child, SIGKILL);  // the command there notices that its output is closed
      ::waitpid(child, nullptr, 0);
      return 128 + number;
    }
  }
}

}  // namespace

std::string forwarded_berth_command(const std::vector<std::string>& words) {
  return shell_command(
      fmt::format("{} && {}=1 exec berth \"$@\"", kFindBerthScript, kForwardedVariable), words);
}

Result<std::optional<int>> forward_job_command(const std::vector<std::string>& words,
                                               const std::string& id, bool terminal) {
  if (get_env(kForwardedVariable)) return std::nullopt;
  const std::string host = TRY(find_job_host(id));
  if (host.empty() || host == harbour_location().host) return std::nullopt;
  TRY(check_permitted_host(host, {}, fmt::format("job {} was started on {}", id, host),
                           fmt::format("berth {} {}", words.front(), id)));
  SignalQueue signals({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD});
  const Ssh ssh = TRY(Ssh::create(host, signals.previous_mask()));
  std::vector<std::string> all = words;
  all.insert(all.end(), {"--", id});
  const pid_t child = TRY(ssh.start(forwarded_berth_command(all), terminal));
  const int code = wait_for_ssh(child, signals);
  if (code == kSshFailed) {
    print_message(fmt::format(
        "ssh to {} exited with 255: the job exited with 255, or the connection failed", host));
  }
  return code;
}

}  // namespace berth
