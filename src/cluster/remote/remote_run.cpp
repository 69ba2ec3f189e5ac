// Waiting for a host, and running the job there; see remote_run.h.
#include "cluster/remote/remote_run.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "base/signals.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cluster/remote/multi_host_ticket.h"
#include "cluster/remote/remote_job_spec.h"
#include "cluster/remote/ssh.h"
#include "run/job.h"
#include "run/wait_display.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kServerRetryDelay(1);  // before an unavailable Redis server is tried again
constexpr seconds kMinRetryDelay(2);     // before a host that did not grant is tried again
constexpr seconds kMaxRetryDelay(60);
constexpr seconds kRecheckInterval(60);  // in case a ring was lost
// How long forwarding a signal over the existing connection may take. After that the connection is
// closed instead, which ends the job.
constexpr seconds kForwardTimeout(15);
constexpr int kHarbourUnavailable = exit_code(ErrorKind::unavailable);
constexpr int kNotGranted = exit_code(ErrorKind::not_granted);

// Sends a signal to a process only if it runs this job spec: its PID comes from Redis, where any
// client with the URL can write another one.
constexpr const char* kSignalJobScript =
    R"(grep -zqxF -e "--job-spec=$3" "/proc/$2/cmdline" && kill -s "$1" "$2")";
constexpr const char* kSaveJobSpecScript =
    R"(umask 077 && f=$(mktemp "${TMPDIR:-/tmp}/berth-job-spec-XXXXXX") && cat >"$f" && echo "$f")";

// The line of ssh's errors that says what is wrong. That is the first line, or the last one if the
// text begins with a banner of @, as for a host whose key has changed.
std::string extract_reason(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  if (text.starts_with('@')) return printable(text.substr(text.rfind('\n') + 1));
  return printable(text.substr(0, text.find('\n')));
}

class RemoteRun {
 public:
  RemoteRun(AcquireRequest request, const RemoteJob& job, Probe* probe)
      : request_(std::move(request)), job_(job), probe_(probe), output_limit_(job.output_limit) {
    request_.job_host = request_.harbour.host;
    if (request_.timeout) deadline_ = Clock::now() + *request_.timeout;
  }

  Result<std::variant<int, Lease>> run() {
    std::error_code problem;
    directory_ = std::filesystem::current_path(problem);
    if (problem) {
      return fail(ErrorKind::usage,
                  fmt::format("run: the current directory cannot be used: {}", problem.message()));
    }
    ticket_.emplace(TRY(MultiHostTicket::create(request_, job_.hosts, job_.skip_unknown_hosts)));
    if (probe_ == nullptr) ticket_->remove_host(request_.harbour.host);
    for (;;) {
      if (!ticket_->has_hosts()) {
        if (last_code_ == kExitNotRunnable || last_code_ == kExitNotFound) return last_code_;
        return fail(ErrorKind::impossible, "no host can run the job; see the messages above");
      }
      auto state = refresh_state();
      if (interrupt_signal_) return 128 + *interrupt_signal_;
      if (!state) {
        if (state.error().kind != ErrorKind::unavailable || request_.no_wait) {
          return tl::make_unexpected(state.error());
        }
        show_notice(fmt::format("{}; trying again", state.error().message));
        if (is_past_deadline())
          return tl::make_unexpected(not_granted_error(state.error().message));
        sleep_until(Clock::now() + kServerRetryDelay);
        continue;
      }
      if (state->ended) {
        return fail(ErrorKind::not_granted,
                    fmt::format("ticket {} was cancelled (berth cancel)", ticket_->id()));
      }
      if (const auto host = next_host(*state)) {
        display_.finish();
        if (auto done = TRY(try_host(*host))) return std::move(*done);
        if (interrupt_signal_) return 128 + *interrupt_signal_;
        continue;
      }
      WaitStatus wait_status = std::move(state->wait_status);
      if (state->recovery_time_left) wait_status = {0, 0, kRecoveryReason, std::nullopt};
      wait_status.since = since_;
      if (wait_status.reason.empty())
        wait_status.reason = "the hosts that seem to have free GPUs have not granted them yet";
      if (request_.no_wait || is_past_deadline())
        return tl::make_unexpected(not_granted_error(wait_status.reason));
      if (job_.on_wait) {
        job_.on_wait();
      } else {
        display_.show(wait_status);
      }
      wait(state->recovery_time_left);
      if (interrupt_signal_) return 128 + *interrupt_signal_;
    }
  }

 private:
  bool is_past_deadline() const { return deadline_ && Clock::now() >= *deadline_; }

  Error not_granted_error(const std::string& reason) const {
    return {ErrorKind::not_granted, request_.timeout
                                        ? fmt::format("not granted within {}: {}",
                                                      format_duration(*request_.timeout), reason)
                                        : fmt::format("not free now (--no-wait): {}", reason)};
  }

  void show_notice(const std::string& text) {
    if (std::exchange(last_notice_, text) != text) display_.show_notice(text);
  }

  Result<MultiHostTicket::WaitState> refresh_state() {
    TRY(ticket_->listen());  // for the rings from now on
    TRY(ticket_->enqueue());
    return ticket_->read_state();
  }

  // Prefers this host, which needs no ssh.
  std::optional<std::string> next_host(const MultiHostTicket::WaitState& state) const {
    std::optional<std::string> next;
    for (const std::string& host : state.ready_hosts) {
      const auto delay = retry_delays_.find(host);
      if (delay != retry_delays_.end() && Clock::now() < delay->second.until) continue;
      if (!next || host == request_.harbour.host) next = host;
    }
    return next;
  }

  void delay_retry(const std::string& host) {
    RetryDelay& delay = retry_delays_[host];
    delay.length = std::clamp(delay.length * 2, kMinRetryDelay, kMaxRetryDelay);
    delay.until = Clock::now() + delay.length;
  }

  void exclude_host(const std::string& host, const std::string& reason) {
    display_.show_notice(fmt::format("{} is skipped: {}", host, reason));
    ticket_->remove_host(host);
  }

  // Sleeps until a host rings, a signal interrupts the wait, or a host is to be tried again.
  void wait(std::optional<milliseconds> recovery_time_left) {
    auto until = Clock::now() + kRecheckInterval;
    if (recovery_time_left) until = Clock::now() + *recovery_time_left;
    for (const auto& [host, delay] : retry_delays_) {
      if (delay.until > Clock::now()) until = std::min(until, delay.until);
    }
    sleep_until(until);
  }

  void sleep_until(Clock::time_point until) {
    if (deadline_) until = std::min(until, *deadline_);
    for (;;) {
      const auto ring_fd = ticket_->listen();
      std::vector<pollfd> poll_fds{{signals_.fd(), POLLIN, 0}};
      if (ring_fd) poll_fds.push_back({*ring_fd, POLLIN, 0});
      const auto next = std::min(until, last_heartbeat_ + ticket_->heartbeat_interval());
      const auto left = std::chrono::ceil<milliseconds>(next - Clock::now()).count();
      ::poll(poll_fds.data(), poll_fds.size(), static_cast<int>(std::max<long>(left, 0)));
      if (is_interrupted() || Clock::now() >= until) return;
      if (ring_fd && poll_fds[1].revents != 0) {
        ticket_->receive_ring();
        return;
      }
      if (!send_heartbeats_if_due()) return;
    }
  }

  // Reads the pending signals. True if the user has interrupted the wait, now or before.
  bool is_interrupted() {
    while (const auto signal = signals_.next()) {
      const auto number = static_cast<int>(signal->ssi_signo);
      if (number != SIGCHLD) interrupt_signal_ = number;
    }
    return interrupt_signal_.has_value();
  }

  // For commands on a host that may hang: they end at the time limit, or when the user interrupts.
  Ssh::RunLimits interruptible_limits() {
    Ssh::RunLimits limits;
    limits.interrupt_fd = signals_.fd();
    limits.is_interrupted = [this] { return is_interrupted(); };
    return limits;
  }

  // False: the state must be read again.
  bool send_heartbeats_if_due() {
    if (Clock::now() < last_heartbeat_ + ticket_->heartbeat_interval()) return true;
    last_heartbeat_ = Clock::now();
    const auto needs_refresh = ticket_->send_heartbeats();
    return needs_refresh && !*needs_refresh;
  }

  // nullopt: the ticket was not granted there, and the job has not run.
  Result<std::optional<std::variant<int, Lease>>> try_host(const std::string& host) {
    if (host == request_.harbour.host) return try_local_host();
    if (!ticket_->forget_claim()) {  // Redis is unavailable: refresh_state() reports it
      delay_retry(host);
      return std::nullopt;
    }
    const Ssh ssh = TRY(Ssh::create(host, signals_.previous_mask()));
    const auto spec_path = send_job_spec(ssh);
    if (!spec_path) return std::nullopt;
    std::vector<std::string> words{"run", fmt::format("--job-spec={}", *spec_path)};
    words.insert(words.end(), job_.flags.begin(), job_.flags.end());
    const pid_t child = TRY(
        ssh.start(shell_command(fmt::format("{} && exec berth \"$@\"", kFindBerthScript), words)));
    const int code = wait_for_job(ssh, child, *spec_path);
    if (interrupt_signal_ && !claim_) return std::nullopt;
    // With a claim, such a code means that `berth run` was granted the GPUs and did not run the
    // job, since the reply of Redis was lost. Or it is the exit code of the job: has_run() decides.
    const bool refused = code == kNotGranted || code == kHarbourUnavailable;
    if (interrupt_signal_ || (claim_ && !refused) || has_run(ssh, *spec_path, code)) return code;
    // Checked once more after has_run() has excluded the host: from then on it cannot grant the
    // ticket.
    check_claim(false);
    if (claim_ && !refused) {
      print_message(
          fmt::format("{} granted the request at the last moment, and may have run the job", host));
      return code;
    }
    claim_.reset();
    return std::nullopt;
  }

  Result<std::optional<std::variant<int, Lease>>> try_local_host() {
    AcquireRequest request = request_;
    request.replaced_ticket = ticket_->id();
    request.job_id = ticket_->id();
    request.no_wait = true;
    request.timeout.reset();
    AcquireCallbacks hooks;
    hooks.on_notice = [this](const std::string& text) { display_.show_notice(text); };
    auto lease = acquire(*probe_, std::move(request), hooks);
    if (lease && *lease) return std::move(**lease);
    delay_retry(request_.harbour.host);
    const bool may_change = !lease && (lease.error().kind == ErrorKind::not_granted ||
                                       lease.error().kind == ErrorKind::unavailable);
    if (!lease && !may_change) {
      exclude_host(request_.harbour.host, lease.error().message);
    }
    return std::nullopt;
  }

  // Returns the path of the file on that host. nullopt: the host cannot be used, and is excluded.
  std::optional<std::string> send_job_spec(const Ssh& ssh) {
    RemoteJobSpec spec{ssh.host(), ticket_->id(),    request_.job_host,
                       directory_, job_.environment, job_.command};
    // A URL from a site's configuration file need not be sent: that host has the file as well.
    if (const char* url = std::getenv("BERTH_URL"); url != nullptr && *url != '\0') {
      spec.environment.emplace_back("BERTH_URL", url);
    }
    const auto sent =
        ssh.run(shell_command(fmt::format("{} && {}", kFindBerthScript, kSaveJobSpecScript), {}),
                format_job_spec(spec), interruptible_limits());
    if (interrupt_signal_) return std::nullopt;
    if (!sent || sent->code != 0) {
      exclude_host(ssh.host(), sent ? extract_reason(sent->errors) : sent.error().message);
      return std::nullopt;
    }
    std::string path = sent->output.substr(0, sent->output.find('\n'));
    if (!path.starts_with('/')) {  // such as the output of a startup file of the shell there
      exclude_host(
          ssh.host(),
          fmt::format("its shell printed {} instead of the path of the job spec", in_quotes(path)));
      return std::nullopt;
    }
    return path;
  }

  // Whether the job has run, or may have. The job spec is removed there when the job is granted its
  // GPUs, and not before. If the job has not run, the host is tried again later, or excluded.
  bool has_run(const Ssh& ssh, const std::string& spec_path, int code) {
    const auto there =
        ssh.run(shell_command("test -e \"$1\" && rm -f \"$1\" && echo waits", {spec_path}), "",
                interruptible_limits());
    if (interrupt_signal_) return false;
    if (!there || there->output != "waits\n") return true;
    if (code == kNotGranted || code == kHarbourUnavailable) {
      delay_retry(ssh.host());
    } else {
      last_code_ = code;
      exclude_host(ssh.host(), fmt::format("'berth run' failed there with exit code {}", code));
    }
    return false;
  }

  // Returns the exit code of ssh, which is the job's or, if ssh failed, 255.
  int wait_for_job(const Ssh& ssh, pid_t child, const std::string& spec_path) {
    const UniqueFd process = open_process(child);
    for (;;) {
      int status = kUnknownStatus;
      const pid_t ended = ::waitpid(child, &status, WNOHANG);
      if (ended == child || (ended < 0 && errno == ECHILD)) {
        const int code = exit_code(status);
        if (code == kSshFailed && claim_) {
          print_message(fmt::format(
              "ssh to {} exited with 255: the job exited with 255, or the connection was lost",
              ssh.host()));
        }
        return code;
      }
      std::vector<pollfd> poll_fds{{signals_.fd(), POLLIN, 0}, {process.get(), POLLIN, 0}};
      const auto ring_fd = claim_ ? Result<int>(-1) : ticket_->listen();
      if (ring_fd) poll_fds.push_back({*ring_fd, POLLIN, 0});
      std::optional<milliseconds> pause;
      if (!claim_) pause = kServerRetryDelay;
      if (output_limit_) {
        const milliseconds next = output_limit_->apply();
        pause = std::min(pause.value_or(next), next);
      }
      ::poll(poll_fds.data(), poll_fds.size(), pause ? static_cast<int>(pause->count()) : -1);
      if (!claim_) check_claim(ring_fd && poll_fds[2].revents != 0);
      while (const auto signal = signals_.next()) {
        const auto number = static_cast<int>(signal->ssi_signo);
        if (number != SIGCHLD) forward_signal(ssh, child, spec_path, number);
      }
    }
  }

  void check_claim(bool rung) {
    if (rung) ticket_->receive_ring();
    if (auto claim = ticket_->read_claim(); claim && *claim) {
      const bool is_new = !claim_;
      claim_ = std::move(**claim);
      if (is_new && job_.on_granted) job_.on_granted(*claim_);
    }
    if (!claim_) (void)send_heartbeats_if_due();
  }

  void forward_signal(const Ssh& ssh, pid_t child, const std::string& spec_path, int number) {
    check_claim(false);
    if (!claim_) {
      interrupt_signal_ = number;
      ::kill(child, SIGKILL);
      return;
    }
    const auto holder_pid = ticket_->find_holder_pid(*claim_);
    Ssh::RunLimits limits;
    limits.timeout = kForwardTimeout;
    const auto sent =
        holder_pid
            ? ssh.run(shell_command(kSignalJobScript, {::sigabbrev_np(number),
                                                       std::to_string(*holder_pid), spec_path}),
                      "", limits)
            : Result<Ssh::CommandOutput>(Ssh::CommandOutput{1, "", ""});
    // The job that cannot be sent the signal is ended by closing the connection.
    if (!sent || sent->code != 0) ::kill(child, SIGKILL);
  }

  struct RetryDelay {
    seconds length{};
    Clock::time_point until{};
  };

  AcquireRequest request_;
  const RemoteJob& job_;
  Probe* probe_;
  std::string directory_;
  SignalQueue signals_{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};
  WaitDisplay display_;
  std::optional<OutputLimit> output_limit_;
  std::optional<MultiHostTicket> ticket_;
  std::optional<RedisHostStore::Claim> claim_;
  std::map<std::string, RetryDelay> retry_delays_;
  std::optional<Clock::time_point> deadline_;
  const TimePoint since_ = std::chrono::system_clock::now();
  Clock::time_point last_heartbeat_ = Clock::now();
  std::optional<int> interrupt_signal_;  // by which the user interrupted the wait
  std::string last_notice_;
  int last_code_ = 0;  // exit code of the host that was excluded last
};

}  // namespace

Result<std::variant<int, Lease>> run_remote_job(const AcquireRequest& request, const RemoteJob& job,
                                                Probe* probe) {
  return RemoteRun(request, job, probe).run();
}

}  // namespace berth
