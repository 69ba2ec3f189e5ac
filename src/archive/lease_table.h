// A compact table of leases for reports and timelines: a million leases need about 100 MiB.
//
// It has each lease once, whatever the order in which lines are added and tables are merged.
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

// A GPU of one lease.
struct LeasedGpu {
  std::uint32_t gpu = 0;              // LeaseTable::gpus()[gpu]
  std::int32_t utilization_pct = -1;  // -1: not measured
  std::int32_t power_mw = -1;         // -1: not measured
};

// A lease without its texts, which are indices into the table. Times are milliseconds since 1970.
struct CompactLease {
  static constexpr std::uint64_t kWholeGpu = UINT64_MAX;

  std::uint64_t id = 0;  // unique together with `owner`
  std::int64_t granted_ms = 0;
  std::int64_t ended_ms = 0;
  std::int64_t idle_ms = -1;         // -1: not measured
  std::uint64_t memory = kWholeGpu;  // reserved on each GPU
  float waited_s = 0;
  std::uint32_t owner = 0;  // LeaseTable::owners()[owner]
  std::uint32_t job = 0;    // LeaseTable::jobs()[job]
  std::uint32_t text = 0;   // LeaseTable::text(); only set if was_idle()
  std::uint32_t first_use = 0;
  std::uint32_t uses = 0;
  Ending ending = Ending::running;
  bool nested = false;  // a part of another lease; reports count only that one

  bool exclusive() const { return memory == kWholeGpu; }
};

// Were its GPUs not utilized for at least ten minutes and half of its time?
bool was_idle(const CompactLease& lease);

// The job type for reports: that of the line or, if it has none, the command's program and script.
std::string job_name(const EntryView& entry);

// Stores each text once and gives it an index. Move-only: `texts_` points into `indices_`.
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

// The user and host of a lease. In a history of several hosts the name identifies the user, since a
// uid may belong to another user on each host.
struct LeaseOwner {
  uid_t uid = 0;
  std::string user{};  // empty: `uid` identifies the user
  std::string host{};  // empty: this host
};

struct GpuIdentity {
  std::string uuid;
  std::string index;  // at the time of the lease; empty if unknown
  std::string name;
  std::string host{};  // empty: this host
};

// The order in which reports list GPUs: by host, index and UUID. "9" comes before "10", and "0"
// before "0:1" (MIG).
bool is_listed_before(const GpuIdentity& a, const GpuIdentity& b);

struct LeaseText {
  std::string command;
  std::string label;
};

// Not thread-safe. Users are hostile: the number of names that one user can add is limited.
class LeaseTable {
 public:
  LeaseTable();

  // If the lease is known, the line that says more about its end counts (see is_more_final()).
  void add(const EntryView& entry);
  void merge(const LeaseTable& other);
  // Applies the leases that are in the harbour now. `live` are those of this host; `remote_keys`
  // are those of other hosts, of which the table has only what their lines say. All of these run
  // until `now`, whatever their lines say, and their use of the GPUs is not measured yet. Any other
  // lease that is Ending::running becomes Ending::lost, unless it is one of `recent_keys`: leases
  // that were in the harbour before the lines were read, so that their end may not be among them.
  void apply_live_leases(const std::vector<HistoryEntry>& live,
                         const std::set<LeaseKey>& remote_keys, TimePoint now,
                         const std::set<LeaseKey>& recent_keys = {});

  const std::deque<CompactLease>& leases() const { return leases_; }
  std::span<const LeasedGpu> uses(const CompactLease& lease) const {
    return std::span(uses_).subspan(lease.first_use, lease.uses);
  }
  const std::vector<LeaseOwner>& owners() const { return owners_; }
  // For each owner, the index of the first owner that is the same user (on any host).
  std::vector<std::uint32_t> find_users_of_owners() const;
  const StringTable& jobs() const { return jobs_; }
  const std::vector<GpuIdentity>& gpus() const { return gpus_; }
  const LeaseText& text(const CompactLease& lease) const { return texts_[lease.text]; }

 private:
  void insert_or_update(CompactLease lease, std::span<const LeasedGpu> uses, const LeaseText* text);
  // A slot of the hash table: the place of a lease, or the free place for a new one.
  struct Slot {
    std::uint32_t lease = 0;  // the index in `leases_` plus 1; 0: free
    std::uint32_t hash_tag =
        0;  // a part of the hash, to skip most other leases without a comparison
  };
  Slot& find_slot(const CompactLease& lease);
  void grow_index();
  std::uint32_t owner_index(uid_t uid, std::string_view user, std::string_view host);
  // kNoGpu if the GPU is new and its owner has added too many (`names_added`; null: no limit).
  static constexpr std::uint32_t kNoGpu = UINT32_MAX;
  std::uint32_t gpu_index(const GpuView& gpu, std::string_view host, std::uint32_t* names_added);
  std::uint32_t job_index(const EntryView& entry);

  std::deque<CompactLease> leases_;
  std::vector<LeasedGpu> uses_;
  std::vector<LeaseText> texts_;
  StringTable owner_names_;
  std::vector<LeaseOwner> owners_;
  std::uint32_t last_owner_ = 0;  // the owner of the last entry, as a cache
  // How many names of jobs and GPUs an owner has added.
  struct NamesAdded {
    std::uint32_t jobs = 0;
    std::uint32_t gpus = 0;
  };
  std::vector<NamesAdded> names_added_;  // parallel to `owners_`
  StringTable jobs_;
  StringTable gpu_names_;
  std::vector<GpuIdentity> gpus_;
  std::vector<std::uint32_t>
      recent_gpus_;          // by the last byte of the UUID: the last such GPU (cache)
  std::vector<Slot> slots_;  // open addressing
  std::uint64_t hash_factor_;
  std::vector<LeasedGpu> scratch_uses_;  // reused by add() and merge()
  std::string key_;                      // reused by owner_index() and gpu_index()
};

}  // namespace berth
