// The thread; see watcher.h.
#include "python/src/watcher.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace berth::python {
namespace {

using Clock = std::chrono::steady_clock;

// A watch has its price when it ends (see supervise()): a short lease does not pay it.
constexpr std::chrono::seconds kShort(1);
constexpr std::chrono::seconds kAudit(60);

class Watcher {
 public:
  Watcher() : news_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  void add(const std::shared_ptr<HeldLease>& lease) {
    const std::lock_guard lock(mutex_);
    watched_.push_back({lease, Clock::now() + kShort});
    if (!thread_.joinable()) start();
    // Not if it wakes soon enough by itself: a program that leases a thousand times a second must
    // not wake it as often.
    if (wakes_ <= watched_.back().from + kShort) return;
    wakes_ = {};
    wake();
  }

  void archive_later(const HarbourLocation& harbour, HistoryEntry entry) {
    const std::lock_guard lock(mutex_);
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
      const std::lock_guard lock(mutex_);
      write_at_ = {};
      for (const Watched& one : watched_) {
        if (auto lease = one.lease.lock()) leases.push_back(std::move(lease));
      }
    }
    write_ended();
    for (const auto& lease : leases) archive_now(*lease, Ending::released);
  }

  void pause() {
    {
      const std::lock_guard lock(mutex_);
      paused_ = true;
    }
    if (!thread_.joinable()) return;
    stop_ = true;
    wake();
    thread_.join();
    stop_ = false;
  }

  void resume() {
    const std::lock_guard lock(mutex_);
    paused_ = false;
    std::erase_if(watched_, [](const Watched& one) { return one.lease.expired(); });
    if ((!watched_.empty() || !ended_.empty()) && !thread_.joinable()) start();
  }

 private:
  struct Watched {
    std::weak_ptr<HeldLease> lease;
    Clock::time_point from;
    bool archived = false;  // that it has begun
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
      const std::lock_guard lock(mutex_);
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
  void start() {
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

  void run() {
    while (!stop_) {
      auto until = Clock::now() + kAudit;
      write_ended();
      std::vector<std::shared_ptr<HeldLease>> leases;
      std::vector<std::shared_ptr<HeldLease>> begun;
      {
        const std::lock_guard lock(mutex_);
        std::erase_if(watched_, [](const Watched& one) { return one.lease.expired(); });
        for (Watched& one : watched_) {
          if (one.from > Clock::now()) {
            until = std::min(until, one.from);
          } else if (auto lease = one.lease.lock()) {
            if (!std::exchange(one.archived, true)) begun.push_back(lease);
            leases.push_back(std::move(lease));
          }
        }
        if (!ended_.empty()) until = std::min(until, write_at_);
        wakes_ = until;
      }
      for (const auto& lease : begun) archive_now(*lease, Ending::running);
      begun.clear();
      std::vector<pollfd> watched{{news_.get(), POLLIN, 0}};
      for (const auto& lease : leases) watched.push_back({lease->deletion_watch(), POLLIN, 0});
      leases.clear();
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
      ::poll(watched.data(), watched.size(), static_cast<int>(std::max(0L, left.count())));
      std::uint64_t count = 0;
      const bool only_news = ::read(news_.get(), &count, sizeof count) > 0;
      if (!only_news) restore_all();
    }
  }

  void restore_all() {
    std::vector<std::shared_ptr<HeldLease>> leases;
    {
      const std::lock_guard lock(mutex_);
      for (const Watched& one : watched_) {
        if (one.from > Clock::now()) continue;
        if (auto lease = one.lease.lock()) leases.push_back(std::move(lease));
      }
    }
    for (const auto& lease : leases) lease->restore();
  }

  UniqueFd news_;
  std::mutex mutex_;
  std::vector<Watched> watched_;
  std::vector<Ended> ended_;      // to be written
  Clock::time_point write_at_{};  // all of them
  Clock::time_point wakes_{};     // the thread, at the latest
  std::thread thread_;
  bool paused_ = false;  // then only pause() and resume() touch the thread
  std::atomic<bool> stop_ = false;
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
