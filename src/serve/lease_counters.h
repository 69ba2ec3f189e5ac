// Counters since the start of the server: grants, the time that they waited, and endings of leases.
//
// There are two sources. The harbour is polled every few seconds and shows the leases that run. The
// history has a line for each lease that has lasted a second, and one for its end. Each source
// alone misses some leases. Together they miss only a lease that begins and is killed by SIGKILL
// between two polls, until another client finds its remains and writes its end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "archive/history.h"
#include "status/status.h"

namespace berth::serve {

struct WaitHistogram {
  // From a tenth of a second to three days.
  static constexpr std::array<double, 12> kBounds{0.1,  1,     10,    60,    300,   900,
                                                  3600, 10800, 21600, 43200, 86400, 259200};

  // Not cumulative: counts[i] is the number of waits up to kBounds[i] and above the bound before
  // it. The last element counts the waits above all bounds.
  std::array<std::uint64_t, kBounds.size() + 1> counts{};
  double sum_s = 0;

  void add(double seconds);
  std::uint64_t total() const;
};

struct HostCounters {
  std::uint64_t grants = 0;
  WaitHistogram waits;
  std::map<Ending, std::uint64_t> endings;
};

// Used by one thread. Counts each lease once. Subleases do not count: they never wait in the queue.
class LeaseCounters {
 public:
  // Grants before `start_time` are not counted; the endings of those leases are.
  explicit LeaseCounters(TimePoint start_time) : start_time_(start_time) {}

  // Counts the leases in the harbour. Only hosts that were observed here have counters: any user
  // can write any host name into a history.
  void observe_status(const std::vector<Status>& hosts);

  // Counts a new line of the history. `this_host` is the host of entries that do not name one.
  void add_history_entry(const HistoryEntry& entry, const std::string& this_host);

  TimePoint start_time() const { return start_time_; }
  const std::map<std::string, HostCounters>& hosts() const { return hosts_; }

 private:
  struct KnownLease {
    bool ended = false;           // and counted in `endings`
    std::uint64_t last_poll = 0;  // number of the last poll that had it
  };

  KnownLease& find_or_add(const LeaseKey& key, TimePoint requested, TimePoint granted);
  void evict_old_leases();

  TimePoint start_time_;
  std::uint64_t poll_number_ = 1;  // of the current observe_status()
  std::map<std::string, HostCounters> hosts_;
  std::map<LeaseKey, KnownLease> known_;
  std::deque<LeaseKey> order_;  // keys of `known_`, oldest first
};

}  // namespace berth::serve
