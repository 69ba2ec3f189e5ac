// What has happened since the server began: grants, how long they had waited, and endings.
//
// Two tell of it. The harbour is looked at every few seconds, and shows what runs; the history has
// a line for each lease that has lasted a second, and one for its end. Each alone misses something:
// together they miss only what is killed with -9 between two looks, until somebody finds it.
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

// Waits, by how many were no longer than each bound.
struct WaitHistogram {
  // From a tenth of a second to three days.
  static constexpr std::array<double, 12> kBounds{0.1,  1,     10,    60,    300,   900,
                                                  3600, 10800, 21600, 43200, 86400, 259200};

  std::array<std::uint64_t, kBounds.size() + 1> counts{};  // each for itself; the last: beyond
  double sum_s = 0;

  void add(double seconds);
  std::uint64_t total() const;
};

struct HostCounters {
  std::uint64_t grants = 0;
  WaitHistogram waits;
  std::map<Ending, std::uint64_t> endings;  // of those that have ended
};

// For one thread. Leases that were carved out of others do not count: nobody waited for them.
class LeaseCounters {
 public:
  // What was granted before that is not counted as a grant.
  explicit LeaseCounters(TimePoint start_time) : start_time_(start_time) {}

  // The leases in the harbour. Only hosts that were seen so are counted for, whatever anybody
  // writes into a history.
  void observe_status(const std::vector<Status>& hosts);

  // A new line of the history. `this_host` is whose it is if the entry does not say.
  void add_history_entry(const HistoryEntry& entry, const std::string& this_host);

  TimePoint start_time() const { return start_time_; }
  const std::map<std::string, HostCounters>& hosts() const { return hosts_; }

 private:
  struct KnownLease {
    bool ended = false;  // and counted as such
    std::uint64_t last_poll = 0;
  };

  KnownLease& find_or_add(const LeaseKey& key, TimePoint requested, TimePoint granted);
  void evict_old_leases();

  TimePoint start_time_;
  std::uint64_t poll_number_ = 1;  // counts them
  std::map<std::string, HostCounters> hosts_;
  std::map<LeaseKey, KnownLease> known_;
  std::deque<LeaseKey> order_;  // in which they became known
};

}  // namespace berth::serve
