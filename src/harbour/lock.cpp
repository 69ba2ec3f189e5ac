// Taking the lock; see lock.h.
#include "harbour/lock.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/process.h"
#include "base/text.h"
#include "base/users.h"
#include "harbour/file_error.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kSlow(3);
constexpr long kTickNs = 200'000'000;

// flock() knows no time limit. This timer interrupts it, again and again, by a signal to this
// thread whose handler does nothing.
class Interrupter {
 public:
  Interrupter() {
    struct sigaction action {};
    struct sigaction before {};
    action.sa_handler = [](int) {};  // without SA_RESTART: flock() returns EINTR
    const int number = SIGRTMAX - 2;
    ::sigaction(number, nullptr, &before);
    if (before.sa_handler == SIG_DFL) ::sigaction(number, &action, nullptr);
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, number);
    ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = number;
    event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));
    made_ = ::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
    const itimerspec ticks{{0, kTickNs}, {0, kTickNs}};
    if (made_) ::timer_settime(timer_, 0, &ticks, nullptr);
  }
  Interrupter(const Interrupter&) = delete;
  Interrupter& operator=(const Interrupter&) = delete;
  ~Interrupter() {
    if (made_) ::timer_delete(timer_);
  }

 private:
  timer_t timer_{};
  bool made_ = false;
};

// Who holds a lock on this file, from /proc/locks ("1: FLOCK ADVISORY WRITE 4711 08:02:1234 0
// EOF").
std::string lock_holder(int directory) {
  struct stat about {};
  if (::fstat(directory, &about) != 0) return "somebody";
  const std::string file =
      fmt::format("{:02x}:{:02x}:{}", major(about.st_dev), minor(about.st_dev), about.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number;
    std::string kind;
    std::string type;
    std::string access;
    pid_t pid = 0;
    std::string place;
    words >> number >> kind >> type >> access >> pid >> place;
    if (kind != "FLOCK" || place != file || pid <= 0) continue;
    std::ifstream comm(fmt::format("/proc/{}/comm", pid));
    std::string name;
    if (!std::getline(comm, name)) return fmt::format("pid {}", pid);
    // Not by the owner of its files in /proc, which is root for who hides them (PR_SET_DUMPABLE).
    const auto owner = process_owner(pid);
    return fmt::format("{} (pid {}{})", printable(name), pid,
                       owner ? fmt::format(", user {}", user_name(*owner)) : "");
  }
  return "a process that cannot be seen from here";
}

}  // namespace

Result<void> lock_directory(int directory, LockMode mode, const Patience& patience) {
  const int operation = mode == LockMode::exclusive ? LOCK_EX : LOCK_SH;
  if (::flock(directory, operation | LOCK_NB) == 0) return {};
  if (errno != EWOULDBLOCK && errno != EINTR) return file_error("lock", directory);
  const Interrupter interrupter;
  const auto begin = Clock::now();
  bool told = false;
  while (::flock(directory, operation) != 0) {
    if (errno != EINTR) return file_error("lock", directory);
    const auto waited = Clock::now() - begin;
    if (!told && waited >= kSlow && patience.on_slow) {
      told = true;
      patience.on_slow(lock_holder(directory));
    }
    if (waited >= patience.limit || (patience.give_up && patience.give_up())) {
      return fail(
          ErrorKind::harbour,
          fmt::format("the harbour is locked by {}, which does not go on; if it is stopped, "
                      "continue or end it (kill -CONT or kill -9)",
                      lock_holder(directory)));
    }
  }
  return {};
}

}  // namespace berth
