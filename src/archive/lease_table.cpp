// Adds leases to the table and merges tables; see lease_table.h.
#include "archive/lease_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <map>
#include <sys/random.h>
#include <tuple>
#include <utility>

namespace berth {
namespace {

constexpr std::int64_t kMinIdleMs = 600'000;
constexpr std::size_t kMaxTextBytes = 200;  // of a command, as reports show it
constexpr std::size_t kInitialSlots = 1024;
constexpr char kKeySeparator = '\x1f';
// Limits for each user. Further job types are counted as one, and further GPUs are left out.
constexpr std::uint32_t kMaxJobs = 4096;
constexpr std::uint32_t kMaxGpus = 1024;
// More than any GPU can draw: 10 kW.
constexpr unsigned kMaxPowerMw = 10'000'000;
constexpr std::string_view kOtherJobs = "(other jobs)";

// An id that Berth made has eight characters. A user who writes other ids can only cause collisions
// between their own leases.
std::uint64_t short_id(std::string_view id) {
  std::uint64_t number = 0;
  if (id.size() == sizeof number) {
    std::memcpy(&number, id.data(), sizeof number);
    return number;
  }
  return std::hash<std::string_view>()(id);
}

// Does `one` replace `other`? Does not depend on which of the two was added first.
bool supersedes(const CompactLease& one, const CompactLease& other) {
  if (is_more_final(one.ending, other.ending)) return true;
  return !is_more_final(other.ending, one.ending) && one.ended_ms > other.ended_ms;
}

// At most `max`; -1 if it was not measured.
std::int32_t measured_value(std::optional<unsigned> value, unsigned max) {
  return value ? static_cast<std::int32_t>(std::min(*value, max)) : -1;
}

// A random factor. If users could predict it, they could choose ids that all hash to the same slot,
// and make every report slow.
std::uint64_t make_hash_factor() {
  std::uint64_t factor = 0x9E3779B97F4A7C15ULL;  // the golden ratio, if there are no random numbers
  if (::getrandom(&factor, sizeof factor, 0) != sizeof factor) return factor;
  return factor | 1;
}

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

bool is_script(std::string_view word) {
  constexpr std::array<std::string_view, 5> kSuffixes{".py", ".sh", ".R", ".jl", ".pl"};
  return std::any_of(kSuffixes.begin(), kSuffixes.end(),
                     [&](std::string_view suffix) { return word.ends_with(suffix); });
}

std::string_view next_word(std::string_view& rest) {
  rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(' ')));
  const std::string_view word = rest.substr(0, rest.find(' '));
  rest.remove_prefix(word.size());
  return word;
}

// The number of the card, and what follows it: "10" comes after "9", and "0:1" (MIG) after "0".
std::pair<unsigned, std::string_view> gpu_sort_key(std::string_view index) {
  unsigned card_number = ~0U;
  const auto [rest, problem] =
      std::from_chars(index.data(), index.data() + index.size(), card_number);
  return {card_number, index.substr(static_cast<std::size_t>(rest - index.data()))};
}

}  // namespace

bool is_listed_before(const GpuIdentity& a, const GpuIdentity& b) {
  return std::tuple(a.host, gpu_sort_key(a.index), a.uuid) <
         std::tuple(b.host, gpu_sort_key(b.index), b.uuid);
}

bool was_idle(const CompactLease& lease) {
  return lease.idle_ms >= kMinIdleMs && lease.idle_ms >= (lease.ended_ms - lease.granted_ms) / 2;
}

std::string job_name(const EntryView& entry) {
  if (!entry.job.empty()) return std::string(entry.job.substr(0, kMaxTextBytes));
  std::string_view rest = entry.command.substr(0, kMaxTextBytes);
  std::string name(base_name(next_word(rest)));
  // "python" alone says nothing about the job, so add the script.
  for (std::string_view word = next_word(rest); !word.empty(); word = next_word(rest)) {
    if (!is_script(word)) continue;
    name += ' ';
    name += base_name(word);
    break;
  }
  return name;
}

std::uint32_t StringTable::intern(std::string_view text) {
  if (const auto known = indices_.find(text); known != indices_.end()) return known->second;
  const auto added = indices_.emplace(std::string(text), size()).first;
  texts_.push_back(&added->first);  // nodes of an unordered_map do not move
  return added->second;
}

LeaseTable::LeaseTable()
    : texts_(1), recent_gpus_(256), slots_(kInitialSlots), hash_factor_(make_hash_factor()) {}

std::vector<std::uint32_t> LeaseTable::find_users_of_owners() const {
  std::vector<std::uint32_t> user_by_owner;
  std::map<std::pair<uid_t, std::string_view>, std::uint32_t> users;
  for (const LeaseOwner& owner : owners_) {
    const auto next = static_cast<std::uint32_t>(user_by_owner.size());
    const uid_t uid = owner.user.empty() ? owner.uid : 0;  // a named user has another uid elsewhere
    user_by_owner.push_back(users.try_emplace({uid, owner.user}, next).first->second);
  }
  return user_by_owner;
}

LeaseTable::Slot& LeaseTable::find_slot(const CompactLease& lease) {
  const std::uint64_t hash = (lease.id ^ (std::uint64_t{lease.owner} << 32)) * hash_factor_;
  const auto hash_tag = static_cast<std::uint32_t>(hash >> 16);
  const int shift = std::countl_zero(slots_.size()) + 1;
  for (std::size_t position = hash >> shift;; position = (position + 1) & (slots_.size() - 1)) {
    Slot& slot = slots_[position];
    if (slot.lease == 0) {
      slot.hash_tag = hash_tag;
      return slot;
    }
    if (slot.hash_tag != hash_tag) continue;
    const CompactLease& candidate = leases_[slot.lease - 1];
    if (candidate.id == lease.id && candidate.owner == lease.owner) return slot;
  }
}

void LeaseTable::grow_index() {
  slots_.assign(slots_.size() * 2, {});
  for (std::uint32_t i = 0; i < leases_.size(); ++i) find_slot(leases_[i]).lease = i + 1;
}

void LeaseTable::insert_or_update(CompactLease lease, std::span<const LeasedGpu> uses,
                                  const LeaseText* text) {
  Slot& slot = find_slot(lease);
  CompactLease* const known = slot.lease == 0 ? nullptr : &leases_[slot.lease - 1];
  if (known != nullptr && (lost_after_end(lease.ending, known->ending) ||
                           lost_after_end(known->ending, lease.ending))) {
    lease.ended_ms = known->ended_ms = std::max(lease.ended_ms, known->ended_ms);
  }
  if (known != nullptr && !supersedes(lease, *known)) return;
  lease.uses = static_cast<std::uint32_t>(uses.size());
  if (known != nullptr && known->uses == lease.uses) {
    lease.first_use = known->first_use;
    std::copy(uses.begin(), uses.end(), uses_.begin() + lease.first_use);
  } else {
    lease.first_use = static_cast<std::uint32_t>(uses_.size());
    uses_.insert(uses_.end(), uses.begin(), uses.end());
  }
  lease.text = 0;
  if (text != nullptr) {
    lease.text = static_cast<std::uint32_t>(texts_.size());
    texts_.push_back(*text);
  }
  if (known != nullptr) {
    *known = lease;
    return;
  }
  leases_.push_back(lease);
  slot.lease = static_cast<std::uint32_t>(leases_.size());
  if (leases_.size() * 2 > slots_.size()) grow_index();
}

std::uint32_t LeaseTable::owner_index(uid_t uid, std::string_view user, std::string_view host) {
  if (last_owner_ < owners_.size()) {
    const LeaseOwner& last = owners_[last_owner_];
    if (last.uid == uid && last.user == user && last.host == host) return last_owner_;
  }
  key_.assign(std::to_string(uid));
  key_ += kKeySeparator;
  key_ += host;
  key_ += kKeySeparator;
  key_ += user;
  last_owner_ = owner_names_.intern(key_);
  if (last_owner_ == owners_.size()) {
    owners_.push_back({uid, std::string(user), std::string(host)});
    names_added_.emplace_back();
  }
  return last_owner_;
}

std::uint32_t LeaseTable::gpu_index(const GpuView& gpu, std::string_view host,
                                    std::uint32_t* names_added) {
  std::uint32_t& recent =
      recent_gpus_[gpu.uuid.empty() ? 0 : static_cast<unsigned char>(gpu.uuid.back())];
  if (recent < gpus_.size()) {
    const GpuIdentity& last = gpus_[recent];
    if (last.uuid == gpu.uuid && last.index == gpu.index && last.name == gpu.name &&
        last.host == host) {
      return recent;
    }
  }
  key_.assign(gpu.uuid);
  key_ += kKeySeparator;
  key_ += gpu.index;
  key_ += kKeySeparator;
  key_ += gpu.name;
  key_ += kKeySeparator;
  key_ += host;
  if (names_added != nullptr && *names_added >= kMaxGpus && !gpu_names_.contains(key_))
    return kNoGpu;
  recent = gpu_names_.intern(key_);
  if (recent == gpus_.size()) {
    gpus_.push_back(
        {std::string(gpu.uuid), std::string(gpu.index), std::string(gpu.name), std::string(host)});
    if (names_added != nullptr) ++*names_added;
  }
  return recent;
}

std::uint32_t LeaseTable::job_index(const EntryView& entry) {
  const std::string derived = entry.job.empty() ? job_name(entry) : std::string();
  std::string_view name = entry.job.empty() ? derived : entry.job.substr(0, kMaxTextBytes);
  std::uint32_t& names_added = names_added_[last_owner_].jobs;
  if (names_added >= kMaxJobs && !jobs_.contains(name)) name = kOtherJobs;
  const std::uint32_t before = jobs_.size();
  const std::uint32_t number = jobs_.intern(name);
  names_added += jobs_.size() - before;
  return number;
}

void LeaseTable::add(const EntryView& entry) {
  CompactLease lease;
  lease.id = short_id(entry.id);
  lease.owner = owner_index(entry.uid, entry.user, entry.host);
  lease.granted_ms = entry.granted_ms;
  lease.ended_ms = std::max(entry.ended_ms, entry.granted_ms);
  lease.waited_s =
      static_cast<float>(std::max<std::int64_t>(entry.granted_ms - entry.asked_ms, 0)) / 1000.0F;
  lease.idle_ms = std::min(entry.idle_ms.value_or(-1), lease.ended_ms - lease.granted_ms);
  if (entry.memory) lease.memory = std::min(*entry.memory, CompactLease::kWholeGpu - 1);
  lease.ending = entry.ending;
  lease.nested = !entry.parent_lease.empty();
  lease.job = job_index(entry);
  scratch_uses_.clear();
  for (const GpuView& gpu : entry.gpus) {
    const std::uint32_t number = gpu_index(gpu, entry.host, &names_added_[lease.owner].gpus);
    if (number == kNoGpu) continue;
    scratch_uses_.push_back({number, measured_value(gpu.utilization_pct, 100),
                             measured_value(gpu.power_mw, kMaxPowerMw)});
  }
  if (was_idle(lease)) {
    const LeaseText text{std::string(entry.command.substr(0, kMaxTextBytes)),
                         std::string(entry.label.substr(0, kMaxTextBytes))};
    insert_or_update(lease, scratch_uses_, &text);
  } else {
    insert_or_update(lease, scratch_uses_, nullptr);
  }
}

void LeaseTable::merge(const LeaseTable& other) {
  std::vector<std::uint32_t> owners;
  for (const LeaseOwner& owner : other.owners_) {
    owners.push_back(owner_index(owner.uid, owner.user, owner.host));
  }
  std::vector<std::uint32_t> jobs;
  for (std::uint32_t i = 0; i < other.jobs_.size(); ++i)
    jobs.push_back(jobs_.intern(other.jobs_[i]));
  std::vector<std::uint32_t> gpus;
  for (const GpuIdentity& gpu : other.gpus_) {
    gpus.push_back(gpu_index({gpu.uuid, gpu.index, gpu.name}, gpu.host, nullptr));
  }
  for (CompactLease lease : other.leases_) {
    scratch_uses_.clear();
    for (const LeasedGpu& use : other.uses(lease)) {
      scratch_uses_.push_back({gpus[use.gpu], use.utilization_pct, use.power_mw});
    }
    lease.owner = owners[lease.owner];
    lease.job = jobs[lease.job];
    insert_or_update(lease, scratch_uses_, lease.text == 0 ? nullptr : &other.text(lease));
  }
}

void LeaseTable::apply_live_leases(const std::vector<HistoryEntry>& live,
                                   const std::set<LeaseKey>& remote_keys, TimePoint now,
                                   const std::set<LeaseKey>& recent_keys) {
  std::set<LeaseKey> running_keys = remote_keys;
  for (const HistoryEntry& entry : live) {
    EntryView view = make_entry_view(entry);
    view.ending = Ending::running;
    // So that a written line supersedes it, which has more information about the GPUs.
    view.ended_ms = view.granted_ms;
    add(view);
    running_keys.insert(lease_key(entry));
  }
  const auto owners_and_ids = [&](const std::set<LeaseKey>& keys) {
    std::set<std::pair<std::uint32_t, std::uint64_t>> found;  // owner and id
    for (const LeaseKey& key : keys) {
      for (std::uint32_t i = 0; i < owners_.size(); ++i) {
        if (owners_[i].uid == key.uid && owners_[i].host == key.host) {
          found.emplace(i, short_id(key.id));
        }
      }
    }
    return found;
  };
  const auto running = owners_and_ids(running_keys);
  const auto recent = owners_and_ids(recent_keys);
  for (CompactLease& lease : leases_) {
    const std::pair key(lease.owner, lease.id);
    if (running.contains(key) || (lease.ending == Ending::running && recent.contains(key))) {
      lease.ending = Ending::running;
      lease.ended_ms = std::max(to_ms(now), lease.granted_ms);
      lease.idle_ms = -1;
      for (std::uint32_t i = 0; i < lease.uses; ++i) {
        LeasedGpu& use = uses_[lease.first_use + i];
        use.utilization_pct = use.power_mw = -1;
      }
    } else if (lease.ending == Ending::running) {
      lease.ending = Ending::lost;
    }
  }
}

}  // namespace berth
