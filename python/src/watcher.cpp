// The background thread for the leases of a Python program; see watcher.h.
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

// An inotify watch is expensive to remove (see supervise()), so short leases do without one.
constexpr std::chrono::seconds kWatchDelay(1);
constexpr std::chrono::seconds kAuditInterval(60);
// A run whose profile is learned is sampled from its start.
constexpr std::chrono::milliseconds kLearningWatchDelay(20);

class LeaseWatcher {
 public:
  LeaseWatcher() : wake_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  void add(const std::shared_ptr<PythonLease>& lease) {
    const MutexLock lock(mutex_);
    const auto now = Clock::now();
    const bool is_learning = lease->sampling_rate() == SamplingRate::learning;
    watched_.push_back(
        {lease, now + (is_learning ? kLearningWatchDelay : kWatchDelay), now + kWatchDelay});
    open_probe();
    if (!thread_.joinable()) start();
    // Do not wake the thread if it wakes soon enough by itself: a program that leases a thousand
    // times a second must not wake it as often.
    const auto max_delay = is_learning ? kLearningWatchDelay : kWatchDelay;
    if (wakes_at_ <= watched_.back().sample_from + max_delay) return;
    wakes_at_ = {};
    wake();
  }

  void archive_later(const HarbourLocation& harbour, HistoryEntry entry) {
    const MutexLock lock(mutex_);
    if (pending_entries_.empty()) write_pending_at_ = Clock::now() + kWatchDelay;
    pending_entries_.push_back({harbour, std::move(entry)});
    if (paused_) return;  // resume() starts the thread
    if (!thread_.joinable()) start();
    if (wakes_at_ <= write_pending_at_) return;
    wakes_at_ = {};
    wake();
  }

  void archive_all() {
    std::vector<std::shared_ptr<PythonLease>> leases;
    {
      const MutexLock lock(mutex_);
      write_pending_at_ = {};
      for (const WatchedLease& one : watched_) {
        if (auto lease = one.lease.lock()) leases.push_back(std::move(lease));
      }
    }
    write_pending_entries();
    for (const auto& lease : leases) archive_lease(*lease, Ending::released);
  }

  bool is_querying_driver() const { return querying_driver_; }

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
    std::erase_if(watched_, [](const WatchedLease& one) { return one.lease.expired(); });
    if ((!watched_.empty() || !pending_entries_.empty()) && !thread_.joinable()) start();
  }

 private:
  struct WatchedLease {
    std::weak_ptr<PythonLease> lease;
    Clock::time_point sample_from;
    Clock::time_point restore_from;  // before this, deleted files are not restored
    bool start_archived = false;
  };
  struct PendingEntry {
    HarbourLocation harbour;
    HistoryEntry entry;
  };

  static void archive_lease(PythonLease& lease, Ending ending) {
    if (const auto entry = lease.current_history_entry(ending))
      (void)archive_entry(lease.location(), *entry);
  }

  // Writes the entries if they are due.
  void write_pending_entries() {
    std::vector<PendingEntry> entries;
    {
      const MutexLock lock(mutex_);
      if (write_pending_at_ > Clock::now()) return;
      entries.swap(pending_entries_);
    }
    for (const PendingEntry& one : entries) (void)archive_entry(one.harbour, one.entry);
  }

  void wake() {
    const std::uint64_t one = 1;
    (void)!::write(wake_event_.get(), &one, sizeof one);
  }

  // Blocks all signals in the thread: they must reach Python's main thread.
  void start() REQUIRES(mutex_) {
    sigset_t all_signals;
    sigset_t previous_mask;
    ::sigfillset(&all_signals);
    ::pthread_sigmask(SIG_SETMASK, &all_signals, &previous_mask);
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
      // Without a thread, leases are not restored. The next call tries again.
    }
    ::pthread_sigmask(SIG_SETMASK, &previous_mask, nullptr);
  }

  // Opens the driver that the environment selects. Called by add(), since the thread must not read
  // the environment, which Python may change at any time.
  void open_probe() REQUIRES(mutex_) {
    std::string key = driver_settings_key();
    if (probe_ && key == probe_key_) return;
    auto probe = open_driver();
    if (!probe) return;
    probe_ = std::move(*probe);
    probe_key_ = std::move(key);
    probe_->set_interrupt(wake_event_.get(), [this] {
      woken_ = clear_wake_event() || woken_;
      return stop_.load();
    });
  }

  bool clear_wake_event() const {
    std::uint64_t count = 0;
    return ::read(wake_event_.get(), &count, sizeof count) > 0;
  }

  // Samples the leases that are due, and returns when the next one is. Takes no lock, since a
  // driver may hang.
  Clock::time_point sample_leases(const std::vector<std::shared_ptr<PythonLease>>& leases,
                                  Probe* probe) {
    auto next = Clock::now() + kAuditInterval;
    for (const auto& lease : leases) {
      if (probe == nullptr || stop_) break;
      if (lease->time_until_sample().count() <= 0) {
        querying_driver_ = true;
        const auto samples = probe->sample(lease->record().uuids);
        querying_driver_ = false;
        lease->add_sample(samples);
      }
      const auto delay =
          std::min<std::chrono::milliseconds>(lease->time_until_sample(), kAuditInterval);
      next = std::min(next, Clock::now() + delay);
    }
    return next;
  }

  void run() {
    while (!stop_) {
      woken_ = false;
      write_pending_entries();
      auto until = Clock::now() + kAuditInterval;
      std::vector<std::shared_ptr<PythonLease>> sampling;
      std::vector<std::shared_ptr<PythonLease>> restorable;
      std::vector<std::shared_ptr<PythonLease>> started;
      std::shared_ptr<Probe> probe;
      {
        const MutexLock lock(mutex_);
        std::erase_if(watched_, [](const WatchedLease& one) { return one.lease.expired(); });
        for (WatchedLease& one : watched_) {
          const auto now = Clock::now();
          const auto lease = one.lease.lock();
          if (one.sample_from > now) until = std::min(until, one.sample_from);
          if (one.restore_from > now) until = std::min(until, one.restore_from);
          if (lease && one.sample_from <= now) sampling.push_back(lease);
          if (!lease || one.restore_from > now) continue;
          if (!std::exchange(one.start_archived, true)) started.push_back(lease);
          restorable.push_back(lease);
        }
        if (!pending_entries_.empty()) until = std::min(until, write_pending_at_);
        wakes_at_ = until;
        probe = probe_;
      }
      until = std::min(until, sample_leases(sampling, probe.get()));
      sampling.clear();
      for (const auto& lease : restorable)
        until = std::min(until, Clock::now() + lease->maintain_heartbeat());
      for (const auto& lease : started) archive_lease(*lease, Ending::running);
      started.clear();
      sleep(std::move(restorable), until);
    }
    // The helper process of the probe ends with the thread that started it.
    const MutexLock lock(mutex_);
    if (probe_) probe_->close_session();
  }

  // Sleeps until then, or until a lease is added or deleted. Restores leases if that is due.
  void sleep(std::vector<std::shared_ptr<PythonLease>> restorable, Clock::time_point until) {
    std::vector<pollfd> watched{{wake_event_.get(), POLLIN, 0}};
    for (const auto& lease : restorable) watched.push_back({lease->deletion_watch_fd(), POLLIN, 0});
    restorable.clear();
    if (woken_) return;
    const auto remaining = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    ::poll(watched.data(), watched.size(), static_cast<int>(std::max(0L, remaining.count())));
    (void)clear_wake_event();
    const bool deleted = std::any_of(watched.begin() + 1, watched.end(),
                                     [](const pollfd& one) { return one.revents != 0; });
    if (deleted || Clock::now() >= next_audit_) restore_all();
  }

  void restore_all() {
    next_audit_ = Clock::now() + kAuditInterval;
    std::vector<std::shared_ptr<PythonLease>> leases;
    {
      const MutexLock lock(mutex_);
      for (const WatchedLease& one : watched_) {
        if (one.restore_from > Clock::now()) continue;
        if (auto lease = one.lease.lock()) leases.push_back(std::move(lease));
      }
    }
    for (const auto& lease : leases) lease->restore_if_deleted();
  }

  const UniqueFd wake_event_;
  Mutex mutex_;
  std::vector<WatchedLease> watched_ GUARDED_BY(mutex_);
  std::vector<PendingEntry> pending_entries_ GUARDED_BY(mutex_);  // not yet written
  Clock::time_point write_pending_at_ GUARDED_BY(mutex_){};
  Clock::time_point wakes_at_ GUARDED_BY(mutex_){};  // when the thread wakes, at the latest
  std::shared_ptr<Probe> probe_ GUARDED_BY(mutex_);  // only the thread queries it
  std::string probe_key_ GUARDED_BY(mutex_);         // driver_settings_key() when it was opened
  bool paused_ GUARDED_BY(mutex_) = false;
  // Guarded by the mutex, except while paused: then only pause() and resume() use it.
  std::thread thread_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> querying_driver_ = false;
  // Used by the thread alone.
  Clock::time_point next_audit_{};  // the files are checked then, at the latest
  bool woken_ = false;              // wake() was called while the thread queried the driver
};

// The watcher of this process. A fork gets a new one: it does not have the thread, and its copy of
// the mutex may be locked for ever. The first call in a process needs the GIL.
LeaseWatcher& process_watcher() {
  static LeaseWatcher* watcher = nullptr;
  static pid_t owner = 0;
  if (watcher == nullptr || owner != ::getpid()) {
    watcher = new LeaseWatcher;  // never destroyed: the thread outlives main()
    owner = ::getpid();
  }
  return *watcher;
}

}  // namespace

void watch_lease(const std::shared_ptr<PythonLease>& lease) {
  process_watcher().add(lease);
}

void archive_later(const HarbourLocation& harbour, HistoryEntry entry) {
  process_watcher().archive_later(harbour, std::move(entry));
}

void archive_all() {
  process_watcher().archive_all();
}

bool is_watcher_querying_driver() {
  return process_watcher().is_querying_driver();
}

void pause_watching() {
  process_watcher().pause();
}

// In the main thread, resumes a little later, as a pending call: Python 3.13 looks for threads
// after it has called this function. Other threads cannot run pending calls, and resume at once.
void resume_watching() {
  if (::gettid() != ::getpid()) {
    process_watcher().resume();
    return;
  }
  Py_AddPendingCall(
      [](void*) {
        process_watcher().resume();
        return 0;
      },
      nullptr);
}

}  // namespace berth::python
