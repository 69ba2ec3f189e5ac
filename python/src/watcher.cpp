// The thread; see watcher.h.
#include "python/src/watcher.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "devices/driver.h"
#include "python/src/request.h"

namespace berth::python {
namespace {

using Clock = std::chrono::steady_clock;

// A watch has its price when it ends (see supervise()): a short lease does not pay it.
constexpr std::chrono::seconds kShort(1);
constexpr std::chrono::seconds kAudit(60);
// What is to be learned from must be looked at from its start.
constexpr std::chrono::milliseconds kLearning(20);

class Watcher {
 public:
  Watcher() : news_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  void add(const std::shared_ptr<HeldLease>& lease) {
    const MutexLock lock(mutex_);
    const auto now = Clock::now();
    const bool learns = lease->attention() == SamplingRate::learning;
    watched_.push_back({lease, now + (learns ? kLearning : kShort), now + kShort});
    choose_driver();
    if (!thread_.joinable()) start();
    // Not if it wakes soon enough by itself: a program that leases a thousand times a second must
    // not wake it as often.
    const auto enough = learns ? kLearning : kShort;
    if (wakes_ <= watched_.back().sampled_from + enough) return;
    wakes_ = {};
    wake();
  }

  void archive_later(const HarbourLocation& harbour, HistoryEntry entry) {
    const MutexLock lock(mutex_);
    if (ended_.empty()) write_at_ = Clock::now() + kShort;
    ended_.push_back({harbour, std::move(entry)});
    if (paused_) return;  // resume() sees to it
    if (!thread_.joinable()) start();
    if (wakes_ <= write_at_) return;
    wakes_ = {};
    wake();
  }

  void archive_all() {
    std::vector<std::shared_ptr<HeldLease>> leases;
    {
      const MutexLock lock(mutex_);
      write_at_ = {};
      for (const Watched& one : watched_) {
        if (auto lease = one.lease.lock()) leases.push_back(std::move(lease));
      }
    }
    write_ended();
    for (const auto& lease : leases) archive_now(*lease, Ending::released);
  }

  bool asks() const { return asks_; }

  void pause() {
    {
      const MutexLock lock(mutex_);
      paused_ = true;
    }
    if (!thread_.joinable()) return;
    stop_ = true;
    wake();
    thread_.join();
    stop_ = false;
  }

  void resume() {
    const MutexLock lock(mutex_);
    paused_ = false;
    std::erase_if(watched_, [](const Watched& one) { return one.lease.expired(); });
    if ((!watched_.empty() || !ended_.empty()) && !thread_.joinable()) start();
  }

 private:
  struct Watched {
    std::weak_ptr<HeldLease> lease;
    Clock::time_point sampled_from;
    Clock::time_point kept_from;  // put back if somebody deletes it
    bool archived = false;        // that it has begun
  };
  struct Ended {
    HarbourLocation harbour;
    HistoryEntry entry;
  };

  static void archive_now(HeldLease& lease, Ending ending) {
    if (const auto entry = lease.entry(ending)) (void)archive(lease.location(), *entry);
  }

  // What has waited long enough.
  void write_ended() {
    std::vector<Ended> ended;
    {
      const MutexLock lock(mutex_);
      if (write_at_ > Clock::now()) return;
      ended.swap(ended_);
    }
    for (const Ended& one : ended) (void)archive(one.harbour, one.entry);
  }

  void wake() {
    const std::uint64_t one = 1;
    (void)!::write(news_.get(), &one, sizeof one);
  }

  // Signals are Python's: its main thread must be the one that they wake.
  void start() REQUIRES(mutex_) {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
      // No thread is to be had: then the lease is not put back. Tried again with the next one.
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  // By what the environment says now: the thread must not look at it.
  void choose_driver() REQUIRES(mutex_) {
    std::string choice = driver_choice();
    if (probe_ && choice == chosen_) return;
    auto probe = open_driver();
    if (!probe) return;
    probe_ = std::move(*probe);
    chosen_ = std::move(choice);
    probe_->interrupt_by(news_.get(), [this] {
      again_ = take_news() || again_;
      return stop_.load();
    });
  }

  bool take_news() const {
    std::uint64_t count = 0;
    return ::read(news_.get(), &count, sizeof count) > 0;
  }

  // Asks about the leases whose time it is, and gives when the next one's is. Without any lock: a
  // driver may hang.
  Clock::time_point look_at(const std::vector<std::shared_ptr<HeldLease>>& leases, Probe* probe) {
    auto next = Clock::now() + kAudit;
    for (const auto& lease : leases) {
      if (probe == nullptr || stop_) break;
      if (lease->due().count() <= 0) {
        asks_ = true;
        const auto uses = probe->use(lease->record().uuids);
        asks_ = false;
        lease->take(uses);
      }
      const auto due = std::min<std::chrono::milliseconds>(lease->due(), kAudit);
      next = std::min(next, Clock::now() + due);
    }
    return next;
  }

  void run() {
    while (!stop_) {
      again_ = false;
      write_ended();
      auto until = Clock::now() + kAudit;
      std::vector<std::shared_ptr<HeldLease>> sampled;
      std::vector<std::shared_ptr<HeldLease>> kept;
      std::vector<std::shared_ptr<HeldLease>> begun;
      std::shared_ptr<Probe> probe;
      {
        const MutexLock lock(mutex_);
        std::erase_if(watched_, [](const Watched& one) { return one.lease.expired(); });
        for (Watched& one : watched_) {
          const auto now = Clock::now();
          const auto lease = one.lease.lock();
          if (one.sampled_from > now) until = std::min(until, one.sampled_from);
          if (one.kept_from > now) until = std::min(until, one.kept_from);
          if (lease && one.sampled_from <= now) sampled.push_back(lease);
          if (!lease || one.kept_from > now) continue;
          if (!std::exchange(one.archived, true)) begun.push_back(lease);
          kept.push_back(lease);
        }
        if (!ended_.empty()) until = std::min(until, write_at_);
        wakes_ = until;
        probe = probe_;
      }
      until = std::min(until, look_at(sampled, probe.get()));
      sampled.clear();
      for (const auto& lease : kept) until = std::min(until, Clock::now() + lease->keep());
      for (const auto& lease : begun) archive_now(*lease, Ending::running);
      begun.clear();
      sleep(std::move(kept), until);
    }
    // Its helper would end with this thread.
    const MutexLock lock(mutex_);
    if (probe_) probe_->rest();
  }

  // Until then, or until there is something to do.
  void sleep(std::vector<std::shared_ptr<HeldLease>> kept, Clock::time_point until) {
    std::vector<pollfd> watched{{news_.get(), POLLIN, 0}};
    for (const auto& lease : kept) watched.push_back({lease->deletion_watch(), POLLIN, 0});
    kept.clear();
    if (again_) return;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    ::poll(watched.data(), watched.size(), static_cast<int>(std::max(0L, left.count())));
    (void)take_news();
    const bool deleted = std::any_of(watched.begin() + 1, watched.end(),
                                     [](const pollfd& one) { return one.revents != 0; });
    if (deleted || Clock::now() >= audit_) restore_all();
  }

  void restore_all() {
    audit_ = Clock::now() + kAudit;
    std::vector<std::shared_ptr<HeldLease>> leases;
    {
      const MutexLock lock(mutex_);
      for (const Watched& one : watched_) {
        if (one.kept_from > Clock::now()) continue;
        if (auto lease = one.lease.lock()) leases.push_back(std::move(lease));
      }
    }
    for (const auto& lease : leases) lease->restore();
  }

  const UniqueFd news_;
  Mutex mutex_;
  std::vector<Watched> watched_ GUARDED_BY(mutex_);
  std::vector<Ended> ended_ GUARDED_BY(mutex_);      // to be written
  Clock::time_point write_at_ GUARDED_BY(mutex_){};  // all of them
  Clock::time_point wakes_ GUARDED_BY(mutex_){};     // the thread, at the latest
  std::shared_ptr<Probe> probe_ GUARDED_BY(mutex_);  // asked by the thread alone
  std::string chosen_ GUARDED_BY(mutex_);            // by what the environment said then
  bool paused_ GUARDED_BY(mutex_) = false;
  // Under the mutex, except while it is paused: then only pause() and resume() touch it.
  std::thread thread_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> asks_ = false;
  // The thread's own.
  Clock::time_point audit_{};  // of the files, at the latest
  bool again_ = false;         // there was news while the thread asked the driver
};

// Of this process: a fork has no thread, and its copy of the lock may be held for ever. The
// first call in a process needs the interpreter.
Watcher& own_watcher() {
  static Watcher* watcher = nullptr;
  static pid_t owner = 0;
  if (watcher == nullptr || owner != ::getpid()) {
    watcher = new Watcher;  // never destroyed: the thread outlives main()
    owner = ::getpid();
  }
  return *watcher;
}

}  // namespace

void watch(const std::shared_ptr<HeldLease>& lease) {
  own_watcher().add(lease);
}

void archive_later(const HarbourLocation& harbour, HistoryEntry entry) {
  own_watcher().archive_later(harbour, std::move(entry));
}

void archive_all() {
  own_watcher().archive_all();
}

bool watcher_asks() {
  return own_watcher().asks();
}

void pause_watching() {
  own_watcher().pause();
}

// In the main thread a little later, when it goes on: Python 3.13 looks for threads when it has
// called us. Another thread cannot wait for that.
void resume_watching() {
  if (::gettid() != ::getpid()) {
    own_watcher().resume();
    return;
  }
  Py_AddPendingCall(
      [](void*) {
        own_watcher().resume();
        return 0;
      },
      nullptr);
}

}  // namespace berth::python
