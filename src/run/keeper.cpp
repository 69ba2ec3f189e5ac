// The keeper and the orphan heartbeat, as forked processes; see keeper.h.
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
#include <set>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "base/descriptors.h"
#include "base/process.h"
#include "base/rate_limiter.h"
#include "base/read_file.h"
#include "base/signals.h"
#include "base/simulation.h"
#include "devices/driver.h"
#include "harbour/bell.h"
#include "lease/lease_history.h"
#include "run/sampler.h"
#include "status/status.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kAuditInterval(60);
constexpr int kDetachTimeoutMs = 1000;

// Keeps nothing of the caller's session, folder or streams: if the keeper held a pipe open, its
// reader would never see the end.
void detach_from_caller(const char* name) {
  ::setsid();
  (void)!::chdir("/");
  const int null = ::open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, fd);
  ::prctl(PR_SET_NAME, name);
}

void close_all_but(std::vector<int> kept) {
  std::sort(kept.begin(), kept.end());
  unsigned from = STDERR_FILENO + 1;
  for (const int fd : kept) {
    if (fd < static_cast<int>(from)) continue;
    if (static_cast<unsigned>(fd) > from) ::close_range(from, static_cast<unsigned>(fd) - 1, 0);
    from = static_cast<unsigned>(fd) + 1;
  }
  ::close_range(from, ~0U, 0);
}

// See Keeper: what it writes to `pipe`.
constexpr char kDelivered = '!';
constexpr char kNotDelivered = '-';

// Waits until the parent has closed the pipe. The last of its bytes counts.
bool was_delivered(int pipe) {
  constexpr std::size_t kMaxBytes = 16;
  const auto text = read_to_end(pipe, kMaxBytes);
  return text && text->ends_with(kDelivered);
}

enum class HoldEnd : std::uint8_t { owner_ended, released };

// Returns when the owner ends, when the keeper gets SIGTERM, or when the lease was ended by its
// user or by root.
HoldEnd hold_until_owner_ends(Lease& lease, int owner, SignalQueue& signals, Probe* probe,
                              std::optional<Sampler>& sampler) {
  // A driver that hangs must not delay the release.
  const UniqueFd interrupt = open_epoll({owner, lease.bell(), signals.fd()});
  if (probe != nullptr) {
    probe->set_interrupt(interrupt.get());
    if (!sampler) sampler.emplace(lease, SamplingRate::reporting);
  }
  const auto stop = [probe](HoldEnd end) {
    if (probe != nullptr) probe->set_interrupt(-1);
    return end;
  };
  RateLimiter rate_limiter;
  auto audit = Clock::now() + audit_interval(kAuditInterval);
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(audit - Clock::now());
    auto pause = std::min(left, lease.maintain_heartbeat());
    if (sampler) pause = std::min(pause, sample_if_due(*sampler, *probe, lease));
    std::array<pollfd, 4> watched{{{owner, POLLIN, 0},
                                   {lease.bell(), POLLIN, 0},
                                   {lease.deletion_watch_fd(), POLLIN, 0},
                                   {signals.fd(), POLLIN, 0}}};
    const auto ms = std::max(pause, std::chrono::milliseconds(0)).count();
    const int ready = ::poll(watched.data(), watched.size(), static_cast<int>(ms));
    if (watched[0].revents != 0) return stop(HoldEnd::owner_ended);
    if (ready == 0 && Clock::now() < audit && !lease.is_ended()) continue;
    audit = Clock::now() + audit_interval(kAuditInterval);
    while (const auto info = signals.next()) {
      if (info->ssi_signo == SIGTERM) return stop(HoldEnd::released);
    }
    rate_limiter.wait(owner);  // any local user can ring without end
    clear_rings(lease.bell());
    if (lease.is_ended()) return stop(HoldEnd::released);
    (void)lease.restore_if_deleted();  // tried again at the next audit
  }
}

// The processes of this user that wait for GPUs, or have a lease other than this one.
std::set<pid_t> find_busy_processes(Lease& lease) {
  std::set<pid_t> busy;
  const auto contents = read_contents(lease.harbour());
  if (!contents) return busy;
  for (const auto* records : {&contents->leases, &contents->tickets}) {
    for (const Record& one : *records) {
      const bool is_ours = one.uid == ::geteuid() && one.pid_namespace == pid_namespace();
      if (is_ours && one.id != lease.id()) busy.insert(one.pid);
    }
  }
  return busy;
}

// Holds the lease for one owner after the other.
void hold_until_owners_end(Lease& lease, LeaseOwners& owners, SignalQueue& signals, Probe* probe,
                           std::optional<Sampler>& sampler) {
  OwnerProcess owner = std::move(owners.first);
  while (hold_until_owner_ends(lease, owner.handle.get(), signals, probe, sampler) ==
         HoldEnd::owner_ended) {
    if (owners.successors.empty() && !owners.orphans_since) return;
    const bool used = sampler && sampler->usage().samples_on_gpu > 0;
    auto next = take_next_owner(owners, owner, used, find_busy_processes(lease));
    if (!next) return;
    owner = std::move(*next);
  }
}

// The child's main function. `pipe` is closed when the parent has delivered the lease, or could
// not.
[[noreturn]] void run_keeper(Lease& lease, LeaseOwners& owners, SignalQueue& signals, int pipe) {
  detach_from_caller("berth-keeper");
  if (RedisHostStore* store = lease.harbour().store()) store->disconnect();
  std::vector<int> kept{lease.bell(), owners.first.handle.get(), signals.fd(), pipe,
                        lease.harbour().directory()};
  for (const OwnerProcess& successor : owners.successors) kept.push_back(successor.handle.get());
  close_all_but(std::move(kept));
  std::optional<Sampler> sampler;
  const auto record = [&](Ending ending) {
    (void)archive_entry(lease.harbour().location(),
                        make_history_entry(lease.record(), lease.host_gpus(), ending, 0,
                                           sampler ? sampler->usage() : Usage{}));
  };
  if (!was_delivered(pipe)) {
    lease.release();
    ::_exit(0);
  }
  record(Ending::running);
  const auto probe = open_driver();
  hold_until_owners_end(lease, owners, signals, probe ? probe->get() : nullptr, sampler);
  if (probe) (*probe)->close_session();
  lease.release();
  record(Ending::released);
  ::_exit(0);
}

// Keeps up the heartbeat of a lease whose `berth run` was killed, until the processes of the job
// are gone. Holds no read end of the bell itself: an open read end would mean that the job is
// alive.
[[noreturn]] void run_orphan_heartbeat(Lease& lease, int job_runner) {
  detach_from_caller("berth-heartbeat");
  RedisHostStore& store = *lease.harbour().store();
  store.disconnect();
  close_all_but({job_runner, lease.harbour().directory()});
  pollfd exit_event{job_runner, POLLIN, 0};
  while (::poll(&exit_event, 1, -1) < 0 && errno == EINTR) {
  }
  const auto bell = open_bell(lease.harbour().directory(), lease.id(), lease.record().uid);
  if (!bell || bell->state != PeerBell::State::alive) ::_exit(0);
  pollfd job{bell->write_end.get(), 0, 0};
  while (job.revents == 0 && !lease.is_ended()) {
    ::poll(&job, 1, static_cast<int>(lease.maintain_heartbeat().count()));
  }
  store.release(lease.id());
  ::_exit(0);
}

}  // namespace

void start_orphan_heartbeat(Lease& lease) {
  const UniqueFd self = open_process(::getpid());
  std::array<int, 2> pipe_ends{};
  if (!self || ::pipe2(pipe_ends.data(), O_CLOEXEC) != 0) return;
  const UniqueFd reading(pipe_ends[0]);
  UniqueFd writing(pipe_ends[1]);
  if (::fork() == 0) run_orphan_heartbeat(lease, self.get());
  // Wait until the child has closed its copies of our descriptors. While it still has the bell, a
  // job that ends now would seem to have left processes behind.
  writing.reset();
  pollfd closed{reading.get(), POLLIN, 0};
  ::poll(&closed, 1, kDetachTimeoutMs);
}

Result<Keeper> Keeper::start(Lease& lease, LeaseOwners& owners) {
  std::array<int, 2> pipe_ends{};
  if (::pipe2(pipe_ends.data(), O_CLOEXEC) != 0) {
    return fail(ErrorKind::io,
                fmt::format("cannot create a pipe to the keeper: {}", std::strerror(errno)));
  }
  UniqueFd reading(pipe_ends[0]);
  UniqueFd writing(pipe_ends[1]);
  // Created before the fork, so that a signal cannot kill the keeper before it queues signals.
  SignalQueue signals({SIGTERM, SIGINT, SIGHUP});
  const pid_t child = ::fork();
  if (child < 0) {
    return fail(ErrorKind::io, fmt::format("the keeper cannot be started: {}; check 'ulimit -u'",
                                           std::strerror(errno)));
  }
  if (child == 0) run_keeper(lease, owners, signals, reading.get());
  return Keeper(std::move(writing));
}

void Keeper::confirm_delivery() {
  (void)!::write(pipe_.get(), &kDelivered, 1);
}

void Keeper::revoke_delivery() {
  (void)!::write(pipe_.get(), &kNotDelivered, 1);
}

}  // namespace berth
