// Waiting for a host, and running a job there; see elsewhere.h.
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

constexpr seconds kServerAway(1);  // until a server that is away is asked again
constexpr seconds kFirstPause(2);  // before a host that did not grant is tried again
constexpr seconds kLongestPause(60);
constexpr seconds kAudit(60);  // the safety net
// For a signal to be passed on over a connection that is there already: then the connection is
// closed instead, which ends the job.
constexpr seconds kPassOn(15);
constexpr int kHarbourAway = exit_code(ErrorKind::unavailable);
constexpr int kNotGranted = exit_code(ErrorKind::not_granted);
constexpr int kNotRunnable = 126;
constexpr int kNotFound = 127;
constexpr int kSshFailed = 255;

// Where pip puts programs, many a non-interactive shell does not look.
constexpr const char* kFindBerth =
    R"({ PATH="$PATH:$HOME/.local/bin"; command -v berth >/dev/null || )"
    R"({ echo "there is no berth in its PATH" >&2; exit 1; }; })";
// A signal, for the process that runs this parcel and for no other: its PID is Redis's word.
constexpr const char* kSignalJob =
    R"(grep -zqxF -e "--parcel=$3" "/proc/$2/cmdline" && kill -s "$1" "$2")";
constexpr const char* kKeepParcel =
    R"(umask 077 && f=$(mktemp "${TMPDIR:-/tmp}/berth-parcel-XXXXXX") && cat >"$f" && echo "$f")";

// The words of a shell at the other end, whose login shell may be any.
std::string shell_command(const std::string& script, const std::vector<std::string>& words) {
  std::vector<std::string> all{"sh", "-c", script, "berth"};
  all.insert(all.end(), words.begin(), words.end());
  return quoted_words(all);
}

// The line of ssh's errors that says what is wrong: the first; the last, where a banner of @ comes
// first, as for a host whose key has changed.
std::string reason_in(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  if (text.starts_with('@')) return printable(text.substr(text.rfind('\n') + 1));
  return printable(text.substr(0, text.find('\n')));
}

class RemoteRun {
 public:
  RemoteRun(AcquireRequest ask, const RemoteJob& what, Probe* probe)
      : ask_(std::move(ask)), what_(what), probe_(probe) {
    if (ask_.timeout) deadline_ = Clock::now() + *ask_.timeout;
  }

  Result<std::variant<int, Lease>> run() {
    std::error_code problem;
    directory_ = std::filesystem::current_path(problem);
    if (problem) {
      return fail(ErrorKind::usage,
                  fmt::format("run: this directory is gone: {}", problem.message()));
    }
    auto made = MultiHostTicket::make(ask_, what_.hosts, what_.any);
    if (!made) return tl::make_unexpected(made.error());
    ticket_.emplace(std::move(*made));
    if (probe_ == nullptr) ticket_->give_up(ask_.harbour.host);
    for (;;) {
      if (ticket_->hosts().empty()) {
        if (last_code_ == kNotRunnable || last_code_ == kNotFound) return last_code_;
        return fail(ErrorKind::impossible, "no host is left that could run it; see above");
      }
      auto view = look();
      if (left_) return 128 + *left_;
      if (!view) {
        if (view.error().kind != ErrorKind::unavailable || ask_.no_wait) {
          return tl::make_unexpected(view.error());
        }
        notice(fmt::format("{}; trying again", view.error().message));
        if (late()) return tl::make_unexpected(not_granted(view.error().message));
        sleep_until(Clock::now() + kServerAway);
        continue;
      }
      if (view->ended) {
        return fail(ErrorKind::not_granted,
                    "this ticket was taken out of the queues (berth cancel)");
      }
      if (const auto host = next_host(*view)) {
        display_.finish();
        auto done = try_host(*host);
        if (!done) return tl::make_unexpected(done.error());
        if (*done) return std::move(**done);
        if (left_) return 128 + *left_;
        continue;
      }
      WaitNews news = std::move(view->news);
      if (view->settles) {
        news = {0, 0, "leases that Redis may have lost are being put back", std::nullopt};
      }
      if (news.reason.empty())
        news.reason = "the hosts that should have GPUs do not grant them yet";
      if (ask_.no_wait || late()) return tl::make_unexpected(not_granted(news.reason));
      display_.show(news);
      wait(view->settles);
      if (left_) return 128 + *left_;
    }
  }

 private:
  bool late() const { return deadline_ && Clock::now() >= *deadline_; }

  Error not_granted(const std::string& why) const {
    return {ErrorKind::not_granted,
            ask_.timeout
                ? fmt::format("not granted within {}: {}", format_duration(*ask_.timeout), why)
                : fmt::format("not granted now, and --no-wait was given: {}", why)};
  }

  void notice(const std::string& text) {
    if (std::exchange(last_notice_, text) != text) display_.notice(text);
  }

  Result<MultiHostTicket::View> look() {
    if (auto ears = ticket_->listen(); !ears) return tl::make_unexpected(ears.error());
    if (auto placed = ticket_->place(); !placed) return tl::make_unexpected(placed.error());
    return ticket_->look();
  }

  // This host first: it needs no ssh.
  std::optional<std::string> next_host(const MultiHostTicket::View& view) const {
    std::optional<std::string> next;
    for (const std::string& host : view.ready) {
      const auto pause = pauses_.find(host);
      if (pause != pauses_.end() && Clock::now() < pause->second.until) continue;
      if (!next || host == ask_.harbour.host) next = host;
    }
    return next;
  }

  void pause_for(const std::string& host) {
    Pause& pause = pauses_[host];
    pause.length = std::clamp(pause.length * 2, kFirstPause, kLongestPause);
    pause.until = Clock::now() + pause.length;
  }

  void give_up(const std::string& host, const std::string& why) {
    display_.notice(fmt::format("{}: {}; it is left out", host, why));
    ticket_->give_up(host);
  }

  // Sleeps until a host rings, somebody interrupts us, or it is time to look again.
  void wait(std::optional<milliseconds> settles) {
    auto until = Clock::now() + kAudit;
    if (settles) until = Clock::now() + *settles;
    for (const auto& [host, pause] : pauses_) {
      if (pause.until > Clock::now()) until = std::min(until, pause.until);
    }
    sleep_until(until);
  }

  void sleep_until(Clock::time_point until) {
    if (deadline_) until = std::min(until, *deadline_);
    for (;;) {
      const auto ears = ticket_->listen();
      std::vector<pollfd> watched{{signals_.fd(), POLLIN, 0}};
      if (ears) watched.push_back({*ears, POLLIN, 0});
      const auto next = std::min(until, beaten_ + ticket_->beat_interval());
      const auto left = std::chrono::ceil<milliseconds>(next - Clock::now()).count();
      ::poll(watched.data(), watched.size(), static_cast<int>(std::max<long>(left, 0)));
      if (is_interrupted() || Clock::now() >= until) return;
      if (ears && watched[1].revents != 0) {
        ticket_->receive_ring();
        return;
      }
      if (!keep_beating()) return;
    }
  }

  // Reads the signals that wait: whether the user leaves.
  bool is_interrupted() {
    while (const auto signal = signals_.next()) {
      const auto number = static_cast<int>(signal->ssi_signo);
      if (number != SIGCHLD) left_ = number;
    }
    return left_.has_value();
  }

  // A host that hangs is waited for until the user leaves, or the limit has come.
  Ssh::Limits until_interrupted() {
    Ssh::Limits limits;
    limits.descriptor = signals_.fd();
    limits.interrupted = [this] { return is_interrupted(); };
    return limits;
  }

  // False: it is time to look.
  bool keep_beating() {
    if (Clock::now() < beaten_ + ticket_->beat_interval()) return true;
    beaten_ = Clock::now();
    const auto news = ticket_->beat();
    return news && !*news;
  }

  // Nothing: it was not granted there.
  Result<std::optional<std::variant<int, Lease>>> try_host(const std::string& host) {
    if (host == ask_.harbour.host) return try_here();
    if (!ticket_->forget_claim()) {  // the server is away: the next look says so
      pause_for(host);
      return std::nullopt;
    }
    auto ssh = Ssh::to(host, signals_.mask_before());
    if (!ssh) return tl::make_unexpected(ssh.error());
    const auto parcel = send_parcel(*ssh);
    if (!parcel) return std::nullopt;
    std::vector<std::string> words{"run", fmt::format("--parcel={}", *parcel)};
    words.insert(words.end(), what_.flags.begin(), what_.flags.end());
    const auto child =
        ssh->start(shell_command(fmt::format("{} && exec berth \"$@\"", kFindBerth), words));
    if (!child) return tl::make_unexpected(child.error());
    const int code = wait_for_job(*ssh, *child, *parcel);
    if (left_ && !claim_) return std::nullopt;
    // Granted, and not run: what the server said of it was lost. Or somebody's exit code.
    const bool refused = code == kNotGranted || code == kHarbourAway;
    if (left_ || (claim_ && !refused) || has_run(*ssh, *parcel, code)) return code;
    // After it was left out: from then on it cannot be granted there.
    look_for_claim(false);
    if (claim_ && !refused) {
      say(fmt::format("{} was granted it at the last moment, and may have run it", host));
      return code;
    }
    claim_.reset();
    return std::nullopt;
  }

  Result<std::optional<std::variant<int, Lease>>> try_here() {
    AcquireRequest ask = ask_;
    ask.instead_of = ticket_->id();
    ask.no_wait = true;
    ask.timeout.reset();
    Hooks hooks;
    hooks.on_notice = [this](const std::string& text) { display_.notice(text); };
    auto lease = acquire(*probe_, std::move(ask), hooks);
    if (lease && *lease) return std::move(**lease);
    pause_for(ask_.harbour.host);
    const bool may_change = !lease && (lease.error().kind == ErrorKind::not_granted ||
                                       lease.error().kind == ErrorKind::unavailable);
    if (!lease && !may_change) {
      give_up(ask_.harbour.host, lease.error().message);
    }
    return std::nullopt;
  }

  // Its path there. Nothing if the host cannot be reached, which then will not do.
  std::optional<std::string> send_parcel(const Ssh& ssh) {
    RemoteJobSpec parcel{ssh.host(), ticket_->id(), directory_, what_.environment, what_.command};
    // What a file of the site says, that host has as well.
    if (const char* url = std::getenv("BERTH_URL"); url != nullptr && *url != '\0') {
      parcel.environment.emplace_back("BERTH_URL", url);
    }
    const auto sent = ssh.run(shell_command(fmt::format("{} && {}", kFindBerth, kKeepParcel), {}),
                              write_parcel(parcel), until_interrupted());
    if (left_) return std::nullopt;
    if (!sent || sent->code != 0) {
      give_up(ssh.host(), sent ? reason_in(sent->errors) : sent.error().message);
      return std::nullopt;
    }
    return sent->output.substr(0, sent->output.find('\n'));
  }

  // It is taken away there when the job is granted its GPUs, and not before.
  bool has_run(const Ssh& ssh, const std::string& parcel, int code) {
    const auto there =
        ssh.run(shell_command("test -e \"$1\" && rm -f \"$1\" && echo waits", {parcel}), "",
                until_interrupted());
    if (left_) return false;
    if (!there || there->output != "waits\n") return true;
    if (code == kNotGranted || code == kHarbourAway) {
      pause_for(ssh.host());
    } else {
      last_code_ = code;
      give_up(ssh.host(), fmt::format("berth run has failed there ({})", code));
    }
    return false;
  }

  // The exit code of ssh: the job's, or its own.
  int wait_for_job(const Ssh& ssh, pid_t child, const std::string& parcel) {
    const UniqueFd process = open_process(child);
    for (;;) {
      int status = kUnknownStatus;
      const pid_t ended = ::waitpid(child, &status, WNOHANG);
      if (ended == child || (ended < 0 && errno == ECHILD)) {
        const int code = exit_code(status);
        if (code == kSshFailed && claim_) {
          say(fmt::format("ssh to {} ended with 255: the job did, or the connection was lost",
                          ssh.host()));
        }
        return code;
      }
      std::vector<pollfd> watched{{signals_.fd(), POLLIN, 0}, {process.get(), POLLIN, 0}};
      const auto ears = claim_ ? Result<int>(-1) : ticket_->listen();
      if (ears) watched.push_back({*ears, POLLIN, 0});
      const int pause = claim_ ? -1 : static_cast<int>(milliseconds(kServerAway).count());
      ::poll(watched.data(), watched.size(), pause);
      if (!claim_) look_for_claim(ears && watched[2].revents != 0);
      while (const auto signal = signals_.next()) {
        const auto number = static_cast<int>(signal->ssi_signo);
        if (number != SIGCHLD) pass_on(ssh, child, parcel, number);
      }
    }
  }

  void look_for_claim(bool rung) {
    if (rung) ticket_->receive_ring();
    if (auto claim = ticket_->claim(); claim && *claim) claim_ = std::move(**claim);
    if (!claim_) (void)keep_beating();
  }

  void pass_on(const Ssh& ssh, pid_t child, const std::string& parcel, int number) {
    look_for_claim(false);
    if (!claim_) {
      left_ = number;
      ::kill(child, SIGKILL);
      return;
    }
    const auto holder = ticket_->holder(*claim_);
    Ssh::Limits limits;
    limits.time = kPassOn;
    const auto sent = holder ? ssh.run(shell_command(kSignalJob, {::sigabbrev_np(number),
                                                                  std::to_string(*holder), parcel}),
                                       "", limits)
                             : Result<Ssh::Output>(Ssh::Output{1, "", ""});
    // Who can be reached in no other way notices that we are gone.
    if (!sent || sent->code != 0) ::kill(child, SIGKILL);
  }

  struct Pause {
    seconds length{};
    Clock::time_point until{};
  };

  AcquireRequest ask_;
  const RemoteJob& what_;
  Probe* probe_;
  std::string directory_;
  SignalQueue signals_{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};
  WaitDisplay display_;
  std::optional<MultiHostTicket> ticket_;
  std::optional<RedisHostStore::Claim> claim_;
  std::map<std::string, Pause> pauses_;
  std::optional<Clock::time_point> deadline_;
  Clock::time_point beaten_ = Clock::now();
  std::optional<int> left_;  // the signal by which the user left
  std::string last_notice_;
  int last_code_ = 0;  // of a host that will not do
};

}  // namespace

Result<std::variant<int, Lease>> run_elsewhere(const AcquireRequest& ask, const RemoteJob& what,
                                               Probe* probe) {
  return RemoteRun(ask, what, probe).run();
}

}  // namespace berth
