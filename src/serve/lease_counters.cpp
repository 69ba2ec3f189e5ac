// Counting each lease once; see tally.h.
#include "serve/lease_counters.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

namespace berth {
namespace {

// Of those that do not run. A line that tells of an older one again would count it twice.
constexpr std::size_t kMostKnown = 50'000;

}  // namespace

void WaitHistogram::add(double seconds) {
  const auto* const bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++counts[static_cast<std::size_t>(bound - kBounds.begin())];
  sum_s += seconds;
}

std::uint64_t WaitHistogram::total() const {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

LeaseCounters::Known& LeaseCounters::know(const LeaseKey& key, TimePoint asked, TimePoint granted) {
  const auto [place, is_new] = known_.try_emplace(key);
  if (!is_new) return place->second;
  order_.push_back(key);
  if (granted >= began_) {
    HostCounters& host = hosts_[key.host];
    ++host.grants;
    host.waits.add(std::max(0.0, std::chrono::duration<double>(granted - asked).count()));
  }
  return place->second;
}

void LeaseCounters::see(const std::vector<Status>& hosts) {
  ++look_;
  for (const Status& host : hosts) {
    hosts_.try_emplace(host.host);
    for (const Record& lease : host.leases) {
      if (!lease.within.empty()) continue;
      know({host.host, lease.uid, lease.id}, lease.since, lease.granted).seen = look_;
    }
  }
  forget_some();
}

void LeaseCounters::take(const HistoryEntry& entry, const std::string& this_host) {
  const std::string& host = entry.host.empty() ? this_host : entry.host;
  if (!entry.within.empty() || !hosts_.contains(host)) return;
  Known& known = know({host, entry.uid, entry.id}, entry.asked, entry.granted);
  if (entry.ending == Ending::running || known.ended) return;
  known.ended = true;
  ++hosts_[host].endings[entry.ending];
}

// The oldest first, but none that still runs: it would be counted again by the next look.
void LeaseCounters::forget_some() {
  for (std::size_t left = order_.size(); known_.size() > kMostKnown && left > 0; --left) {
    LeaseKey key = std::move(order_.front());
    order_.pop_front();
    const auto place = known_.find(key);
    if (place->second.seen == look_) {
      order_.push_back(std::move(key));
    } else {
      known_.erase(place);
    }
  }
}

}  // namespace berth
