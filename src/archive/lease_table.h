// What a report needs of each lease, in little room: a million of them take up about 100 MiB.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <unordered_map>
#include <vector>

#include "archive/entry_view.h"

namespace berth {

// A GPU while a lease held it.
struct LeasedGpu {
  std::uint32_t gpu = 0;              // LeaseTable::gpus()[gpu]
  std::int32_t utilization_pct = -1;  // -1: not measured
};

// Texts stand elsewhere, once for all leases that have them. Times are milliseconds since 1970.
struct CompactLease {
  static constexpr std::uint64_t kWholeGpu = UINT64_MAX;

  std::uint64_t id = 0;  // with `owner`, tells leases apart
  std::int64_t granted_ms = 0;
  std::int64_t ended_ms = 0;
  std::int64_t idle_ms = -1;         // -1: not measured
  std::uint64_t memory = kWholeGpu;  // reserved on each GPU
  float waited_s = 0;
  std::uint32_t owner = 0;  // LeaseTable::owners()[owner]
  std::uint32_t job = 0;    // LeaseTable::jobs()[job]
  std::uint32_t text = 0;   // LeaseTable::text(); only of those that were idle
  std::uint32_t first_use = 0;
  std::uint32_t uses = 0;
  Ending ending = Ending::running;
  bool nested = false;  // carved out of another, which counts

  bool exclusive() const { return memory == kWholeGpu; }
};

// Has it held GPUs for long that nobody utilized: ten minutes, and half of its time?
bool was_idle(const CompactLease& lease);

// The type of the job: as the line has it or, where it has none, what its command runs.
std::string job_name(const EntryView& entry);

// Texts that occur many times, as numbers. Move-only: its list of texts points into its map.
class StringTable {
 public:
  StringTable() = default;
  StringTable(StringTable&&) noexcept = default;
  StringTable& operator=(StringTable&&) noexcept = default;
  StringTable(const StringTable&) = delete;
  StringTable& operator=(const StringTable&) = delete;
  ~StringTable() = default;

  std::uint32_t intern(std::string_view text);
  bool contains(std::string_view text) const { return indices_.find(text) != indices_.end(); }
  const std::string& operator[](std::uint32_t index) const { return *texts_[index]; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(texts_.size()); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>> indices_;
  std::vector<const std::string*> texts_;
};

// Who had a lease, and where. In a history of several hosts uids say nothing: there he has a name.
struct LeaseOwner {
  uid_t uid = 0;
  std::string user{};  // empty: `uid` tells
  std::string host{};  // empty: this one
};

struct GpuIdentity {
  std::string uuid;
  std::string index;  // as it was then; empty if nobody knew
  std::string name;
  std::string host{};  // empty: this one
};

struct LeaseText {
  std::string command;
  std::string label;
};

// Each lease once, as who knows most tells it: in whatever order lines are taken, and tables
// merged.
class LeaseTable {
 public:
  LeaseTable();

  void add(const EntryView& entry);
  void merge(const LeaseTable& other);
  // What the harbour says: who is in `live` or `remote_keys` runs until now, whatever is written,
  // and how well it uses its GPUs is not known yet. Of the others that are written as running, each
  // is lost. Of who is `remote_keys`, on other hosts, nothing is known but what is written.
  void apply_live_leases(const std::vector<HistoryEntry>& live,
                         const std::set<LeaseKey>& remote_keys, TimePoint now);

  const std::deque<CompactLease>& leases() const { return leases_; }
  std::span<const LeasedGpu> uses(const CompactLease& lease) const {
    return std::span(uses_).subspan(lease.first_use, lease.uses);
  }
  const std::vector<LeaseOwner>& owners() const { return owners_; }
  const StringTable& jobs() const { return jobs_; }
  const std::vector<GpuIdentity>& gpus() const { return gpus_; }
  const LeaseText& text(const CompactLease& lease) const { return texts_[lease.text]; }

 private:
  void insert_or_update(CompactLease lease, std::span<const LeasedGpu> uses, const LeaseText* text);
  // Where the index has a lease, or would have it.
  struct Slot {
    std::uint32_t lease = 0;     // its number and 1; 0: nothing is here
    std::uint32_t hash_tag = 0;  // tells most others without a look at them
  };
  Slot& find_slot(const CompactLease& lease);
  void grow_index();
  std::uint32_t owner_index(uid_t uid, std::string_view user, std::string_view host);
  // kNoGpu if it is new, and its owner has brought in (`names_added`, if not null) too many
  // already.
  static constexpr std::uint32_t kNoGpu = UINT32_MAX;
  std::uint32_t gpu_index(const GpuView& gpu, std::string_view host, std::uint32_t* names_added);
  std::uint32_t job_index(const EntryView& entry);

  std::deque<CompactLease> leases_;
  std::vector<LeasedGpu> uses_;
  std::vector<LeaseText> texts_;
  StringTable owner_names_;
  std::vector<LeaseOwner> owners_;
  std::uint32_t last_owner_ = 0;  // which was the last one
  // How many names of jobs and GPUs each owner has brought in.
  struct NamesAdded {
    std::uint32_t jobs = 0;
    std::uint32_t gpus = 0;
  };
  std::vector<NamesAdded> names_added_;  // as in `owners_`
  StringTable jobs_;
  StringTable gpu_names_;
  std::vector<GpuIdentity> gpus_;
  std::vector<std::uint32_t> recent_gpus_;  // which was the last one whose UUID ends so
  std::vector<Slot> slots_;                 // open addressing
  std::uint64_t hash_factor_;
  std::vector<LeasedGpu> scratch_uses_;  // of the entry at hand
  std::string key_;
};

}  // namespace berth
