// Compares requests, and remembers the ones whose answer is known; see dominance_cache.h.
#include "schedule/dominance_cache.h"

#include <algorithm>
#include <utility>

namespace berth::schedule {

bool is_no_stricter(const Request& a, const Request& b) {
  // Shared and exclusive requests cannot be compared: a shared one asks for less than the whole
  // GPU, but needs room beside the memory of strangers, which an exclusive one does not.
  if (a.count > b.count || a.memory.has_value() != b.memory.has_value()) return false;
  if (a.memory && *a.memory > *b.memory) return false;
  if (b.time && (!a.time || *a.time > *b.time)) return false;
  return a.uuids == b.uuids && a.name == b.name && a.min_memory == b.min_memory &&
         a.max_utilization_pct == b.max_utilization_pct &&
         a.max_memory_utilization_pct == b.max_memory_utilization_pct &&
         a.max_processes == b.max_processes;
}

bool DominanceCache::covers(const Request& request) const {
  return std::any_of(known_.begin(), known_.end(),
                     [&](const Request& known) { return rule_(known, request); });
}

void DominanceCache::add(Request known) {
  constexpr std::size_t kMaxEntries = 128;
  std::erase_if(known_, [&](const Request& other) { return rule_(known, other); });
  if (known_.size() < kMaxEntries) known_.push_back(std::move(known));
}

}  // namespace berth::schedule
