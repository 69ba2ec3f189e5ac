// The keeper's life; see keeper.h.
#include "run/keeper.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "base/descriptors.h"
#include "base/process.h"
#include "base/rate_limiter.h"
#include "base/signals.h"
#include "devices/driver.h"
#include "harbour/bell.h"
#include "lease/lease_history.h"
#include "run/sampler.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kAudit(60);
constexpr int kMostForSuccessorMs = 1000;

// Nothing of who has started it: a pipe that the keeper held open would never end for its reader.
void detach(const char* name) {
  ::setsid();
  (void)!::chdir("/");
  const int null = ::open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, fd);
  ::prctl(PR_SET_NAME, name);
}

void close_all_but(std::initializer_list<int> kept) {
  std::vector<int> sorted(kept);
  std::sort(sorted.begin(), sorted.end());
  unsigned from = STDERR_FILENO + 1;
  for (const int fd : sorted) {
    if (fd < static_cast<int>(from)) continue;
    if (static_cast<unsigned>(fd) > from) ::close_range(from, static_cast<unsigned>(fd) - 1, 0);
    from = static_cast<unsigned>(fd) + 1;
  }
  ::close_range(from, ~0U, 0);
}

bool was_delivered(int pipe) {
  char byte = 0;
  ssize_t got = 0;
  do {
    got = ::read(pipe, &byte, 1);
  } while (got < 0 && errno == EINTR);
  return got == 1;
}

// Holds the lease until its owner ends, or somebody who may ends it.
void keep(Lease& lease, int owner, SignalQueue& signals, Probe* probe,
          std::optional<Sampler>& sampler) {
  // A driver that hangs must not keep us from giving the lease back.
  const UniqueFd news = readable_if_any({owner, lease.bell(), signals.fd()});
  if (probe != nullptr) {
    probe->interrupt_by(news.get());
    sampler.emplace(lease, SamplingRate::reporting);
  }
  RateLimiter pace;
  auto audit = Clock::now() + kAudit;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(audit - Clock::now());
    auto pause = std::min(left, lease.keep());
    if (sampler) pause = std::min(pause, sample(*sampler, *probe, lease));
    std::array<pollfd, 4> watched{{{owner, POLLIN, 0},
                                   {lease.bell(), POLLIN, 0},
                                   {lease.deletion_watch(), POLLIN, 0},
                                   {signals.fd(), POLLIN, 0}}};
    const auto ms = std::max(pause, std::chrono::milliseconds(0)).count();
    const int ready = ::poll(watched.data(), watched.size(), static_cast<int>(ms));
    if (watched[0].revents != 0) return;
    if (ready == 0 && Clock::now() < audit && !lease.is_ended()) continue;
    audit = Clock::now() + kAudit;
    while (const auto info = signals.next()) {
      if (info->ssi_signo == SIGTERM) return;
    }
    pace.keep(owner);  // anybody may ring us without end
    quiet(lease.bell());
    if (lease.is_ended()) return;
    (void)lease.restore();  // tried again at the next audit
  }
}

// What the child does; `pipe` says whether its parent could tell the caller of the lease.
[[noreturn]] void be_keeper(Lease& lease, const Owner& owner, SignalQueue& signals, int pipe) {
  detach("berth-keeper");
  if (RedisHostStore* part = lease.harbour().part()) part->disconnect();
  close_all_but(
      {lease.bell(), owner.handle.get(), signals.fd(), pipe, lease.harbour().directory()});
  std::optional<Sampler> sampler;
  const auto record = [&](Ending ending) {
    (void)archive(lease.harbour().location(),
                  history_entry(lease.record(), lease.host_gpus(), ending, 0,
                                sampler ? sampler->usage() : Usage{}));
  };
  if (!was_delivered(pipe)) {
    lease.release();
    ::_exit(0);
  }
  record(Ending::running);
  const auto probe = open_driver();
  keep(lease, owner.handle.get(), signals, probe ? probe->get() : nullptr, sampler);
  if (probe) (*probe)->rest();
  lease.release();
  record(Ending::released);
  ::_exit(0);
}

// Holds no bell of its own: who lives is the job.
[[noreturn]] void be_successor(Lease& lease, int predecessor) {
  detach("berth-successor");
  RedisHostStore& part = *lease.harbour().part();
  part.disconnect();
  close_all_but({predecessor, lease.harbour().directory()});
  pollfd ends{predecessor, POLLIN, 0};
  while (::poll(&ends, 1, -1) < 0 && errno == EINTR) {
  }
  const auto bell = open_bell(lease.harbour().directory(), lease.id(), lease.record().uid);
  if (!bell || bell->state != PeerBell::State::alive) ::_exit(0);
  pollfd job{bell->end.get(), 0, 0};
  while (job.revents == 0 && !lease.is_ended()) {
    ::poll(&job, 1, static_cast<int>(lease.keep().count()));
  }
  part.release(lease.id());
  ::_exit(0);
}

}  // namespace

void start_orphan_heartbeat(Lease& lease) {
  const UniqueFd self = open_process(::getpid());
  std::array<int, 2> ends{};
  if (!self || ::pipe2(ends.data(), O_CLOEXEC) != 0) return;
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  if (::fork() == 0) be_successor(lease, self.get());
  // Until it has closed what it has of ours: with its copy of the bell, a job that ends just now
  // would seem to have left somebody behind.
  writing.reset();
  pollfd closed{reading.get(), POLLIN, 0};
  ::poll(&closed, 1, kMostForSuccessorMs);
}

Result<Keeper> Keeper::start(Lease& lease, const Owner& owner) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return fail(ErrorKind::io, fmt::format("no pipe to the keeper: {}", std::strerror(errno)));
  }
  UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  // Made before the fork: no signal finds a keeper that would die of it.
  SignalQueue signals({SIGTERM, SIGINT, SIGHUP});
  const pid_t child = ::fork();
  if (child < 0) {
    return fail(ErrorKind::io, fmt::format("the keeper cannot be started: {}; see ulimit -u",
                                                std::strerror(errno)));
  }
  if (child == 0) be_keeper(lease, owner, signals, reading.get());
  return Keeper(std::move(writing));
}

void Keeper::delivered() {
  const char byte = '!';
  (void)!::write(pipe_.get(), &byte, 1);
  pipe_.reset();
}

}  // namespace berth
