// Counts grants, waits and endings, each lease once; see lease_counters.h.
#include "serve/lease_counters.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

namespace berth::serve {
namespace {

// Leases that run are kept beyond this limit. A history line about a lease that was forgotten would
// count that lease twice.
constexpr std::size_t kMaxKnownLeases = 50'000;

}  // namespace

void WaitHistogram::add(double seconds) {
  const auto* const bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++counts[static_cast<std::size_t>(bound - kBounds.begin())];
  sum_s += seconds;
}

std::uint64_t WaitHistogram::total() const {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

LeaseCounters::KnownLease& LeaseCounters::find_or_add(const LeaseKey& key, TimePoint requested,
                                                      TimePoint granted) {
  const auto [position, is_new] = known_.try_emplace(key);
  if (!is_new) return position->second;
  order_.push_back(key);
  if (granted >= start_time_) {
    HostCounters& host = hosts_[key.host];
    ++host.grants;
    host.waits.add(std::max(0.0, std::chrono::duration<double>(granted - requested).count()));
  }
  return position->second;
}

void LeaseCounters::observe_status(const std::vector<Status>& hosts) {
  ++poll_number_;
  for (const Status& host : hosts) {
    hosts_.try_emplace(host.host);
    for (const Record& lease : host.leases) {
      if (!lease.parent_lease.empty()) continue;
      find_or_add({host.host, lease.uid, lease.id}, lease.since, lease.granted).last_poll =
          poll_number_;
    }
  }
  evict_old_leases();
}

void LeaseCounters::add_history_entry(const HistoryEntry& entry, const std::string& this_host) {
  const std::string& host = entry.host.empty() ? this_host : entry.host;
  if (!entry.parent_lease.empty() || !hosts_.contains(host)) return;
  KnownLease& known = find_or_add({host, entry.uid, entry.id}, entry.asked, entry.granted);
  if (entry.ending == Ending::running || known.ended) return;
  known.ended = true;
  ++hosts_[host].endings[entry.ending];
}

// Forgets the oldest leases first, but none that still runs: the next poll would count it again.
void LeaseCounters::evict_old_leases() {
  for (std::size_t left = order_.size(); known_.size() > kMaxKnownLeases && left > 0; --left) {
    LeaseKey key = std::move(order_.front());
    order_.pop_front();
    const auto position = known_.find(key);
    if (position->second.last_poll == poll_number_) {
      order_.push_back(std::move(key));
    } else {
      known_.erase(position);
    }
  }
}

}  // namespace berth::serve
