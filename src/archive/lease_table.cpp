// The table of leases; see lease_table.h.
#include "archive/lease_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <sys/random.h>
#include <utility>

namespace berth {
namespace {

constexpr std::int64_t kIdleAtLeastMs = 600'000;
constexpr std::size_t kLongestText = 200;  // of a command, for people
constexpr std::size_t kFirstSlots = 1024;
constexpr char kBetween = '\x1f';
// Of one user: more jobs than these are counted as one, and more GPUs are left out.
constexpr std::uint32_t kMostJobs = 4096;
constexpr std::uint32_t kMostGpus = 1024;
constexpr std::string_view kOtherJobs = "(other jobs)";

// An id that berth made is eight letters. Whoever writes others into his own file can only make
// his own leases be taken for each other.
std::uint64_t short_id(std::string_view id) {
  std::uint64_t number = 0;
  if (id.size() == sizeof number) {
    std::memcpy(&number, id.data(), sizeof number);
    return number;
  }
  return std::hash<std::string_view>()(id);
}

// In an order that does not depend on which of the two came first.
bool replaces(const CompactLease& one, const CompactLease& other) {
  if (is_more_final(one.ending, other.ending)) return true;
  return !is_more_final(other.ending, one.ending) && one.ended_ms > other.ended_ms;
}

// One that nobody can guess: else somebody could choose ids that all want the same place, and keep
// everybody's report busy.
std::uint64_t random_factor() {
  std::uint64_t factor = 0x9E3779B97F4A7C15ULL;  // the golden ratio, if there is no better
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

std::string_view take_word(std::string_view& rest) {
  rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(' ')));
  const std::string_view word = rest.substr(0, rest.find(' '));
  rest.remove_prefix(word.size());
  return word;
}

}  // namespace

bool was_idle(const CompactLease& lease) {
  return lease.idle_ms >= kIdleAtLeastMs &&
         lease.idle_ms >= (lease.ended_ms - lease.granted_ms) / 2;
}

std::string job_name(const EntryView& entry) {
  if (!entry.job.empty()) return std::string(entry.job.substr(0, kLongestText));
  std::string_view rest = entry.command.substr(0, kLongestText);
  std::string name(base_name(take_word(rest)));
  // "python" alone would tell nobody anything.
  for (std::string_view word = take_word(rest); !word.empty(); word = take_word(rest)) {
    if (!is_script(word)) continue;
    name += ' ';
    name += base_name(word);
    break;
  }
  return name;
}

std::uint32_t StringTable::number(std::string_view text) {
  if (const auto known = numbers_.find(text); known != numbers_.end()) return known->second;
  const auto added = numbers_.emplace(std::string(text), size()).first;
  texts_.push_back(&added->first);  // the nodes of a map stay where they are
  return added->second;
}

LeaseTable::LeaseTable()
    : texts_(1), gpu_hints_(256), slots_(kFirstSlots), factor_(random_factor()) {}

LeaseTable::Slot& LeaseTable::slot_of(const CompactLease& lease) {
  const std::uint64_t mixed = (lease.id ^ (std::uint64_t{lease.owner} << 32)) * factor_;
  const auto mark = static_cast<std::uint32_t>(mixed >> 16);
  const int shift = std::countl_zero(slots_.size()) + 1;
  for (std::size_t place = mixed >> shift;; place = (place + 1) & (slots_.size() - 1)) {
    Slot& slot = slots_[place];
    if (slot.lease == 0) {
      slot.mark = mark;
      return slot;
    }
    if (slot.mark != mark) continue;
    const CompactLease& there = leases_[slot.lease - 1];
    if (there.id == lease.id && there.owner == lease.owner) return slot;
  }
}

void LeaseTable::grow() {
  slots_.assign(slots_.size() * 2, {});
  for (std::uint32_t i = 0; i < leases_.size(); ++i) slot_of(leases_[i]).lease = i + 1;
}

void LeaseTable::put(CompactLease lease, std::span<const LeasedGpu> uses, const LeaseText* text) {
  Slot& slot = slot_of(lease);
  CompactLease* const known = slot.lease == 0 ? nullptr : &leases_[slot.lease - 1];
  if (known != nullptr &&
      (lost_after_end(lease.ending, known->ending) || lost_after_end(known->ending, lease.ending))) {
    lease.ended_ms = known->ended_ms = std::max(lease.ended_ms, known->ended_ms);
  }
  if (known != nullptr && !replaces(lease, *known)) return;
  lease.uses = static_cast<std::uint32_t>(uses.size());
  if (known != nullptr && known->uses == lease.uses) {
    lease.first_use = known->first_use;
    std::copy(uses.begin(), uses.end(), uses_.begin() + lease.first_use);
  } else {
    lease.first_use = static_cast<std::uint32_t>(uses_.size());
    uses_.insert(uses_.end(), uses.begin(), uses.end());
  }
  lease.about = 0;
  if (text != nullptr) {
    lease.about = static_cast<std::uint32_t>(texts_.size());
    texts_.push_back(*text);
  }
  if (known != nullptr) {
    *known = lease;
    return;
  }
  leases_.push_back(lease);
  slot.lease = static_cast<std::uint32_t>(leases_.size());
  if (leases_.size() * 2 > slots_.size()) grow();
}

std::uint32_t LeaseTable::owner_number(uid_t uid, std::string_view user, std::string_view host) {
  if (owner_hint_ < owners_.size()) {
    const LeaseOwner& last = owners_[owner_hint_];
    if (last.uid == uid && last.user == user && last.host == host) return owner_hint_;
  }
  key_.assign(std::to_string(uid));
  key_ += kBetween;
  key_ += host;
  key_ += kBetween;
  key_ += user;
  owner_hint_ = owner_names_.number(key_);
  if (owner_hint_ == owners_.size()) {
    owners_.push_back({uid, std::string(user), std::string(host)});
    brought_.emplace_back();
  }
  return owner_hint_;
}

std::uint32_t LeaseTable::gpu_number(const GpuView& gpu, std::string_view host,
                                     std::uint32_t* brought) {
  std::uint32_t& hint =
      gpu_hints_[gpu.uuid.empty() ? 0 : static_cast<unsigned char>(gpu.uuid.back())];
  if (hint < gpus_.size()) {
    const KnownGpu& last = gpus_[hint];
    if (last.uuid == gpu.uuid && last.index == gpu.index && last.name == gpu.name &&
        last.host == host) {
      return hint;
    }
  }
  key_.assign(gpu.uuid);
  key_ += kBetween;
  key_ += gpu.index;
  key_ += kBetween;
  key_ += gpu.name;
  key_ += kBetween;
  key_ += host;
  if (brought != nullptr && *brought >= kMostGpus && !gpu_names_.contains(key_)) return kNoGpu;
  hint = gpu_names_.number(key_);
  if (hint == gpus_.size()) {
    gpus_.push_back(
        {std::string(gpu.uuid), std::string(gpu.index), std::string(gpu.name), std::string(host)});
    if (brought != nullptr) ++*brought;
  }
  return hint;
}

std::uint32_t LeaseTable::job_number(const EntryView& entry) {
  const std::string derived = entry.job.empty() ? job_name(entry) : std::string();
  std::string_view name = entry.job.empty() ? derived : entry.job.substr(0, kLongestText);
  std::uint32_t& brought = brought_[owner_hint_].jobs;
  if (brought >= kMostJobs && !jobs_.contains(name)) name = kOtherJobs;
  const std::uint32_t before = jobs_.size();
  const std::uint32_t number = jobs_.number(name);
  brought += jobs_.size() - before;
  return number;
}

void LeaseTable::take(const EntryView& entry) {
  CompactLease lease;
  lease.id = short_id(entry.id);
  lease.owner = owner_number(entry.uid, entry.user, entry.host);
  lease.granted_ms = entry.granted_ms;
  lease.ended_ms = std::max(entry.ended_ms, entry.granted_ms);
  lease.waited_s =
      static_cast<float>(std::max<std::int64_t>(entry.granted_ms - entry.asked_ms, 0)) / 1000.0F;
  lease.idle_ms = std::min(entry.idle_ms.value_or(-1), lease.ended_ms - lease.granted_ms);
  if (entry.memory) lease.memory = std::min(*entry.memory, CompactLease::kWhole - 1);
  lease.ending = entry.ending;
  lease.nested = !entry.within.empty();
  lease.job = job_number(entry);
  scratch_uses_.clear();
  for (const GpuView& gpu : entry.gpus) {
    const auto utilization =
        gpu.utilization_pct ? static_cast<std::int32_t>(std::min(*gpu.utilization_pct, 100U)) : -1;
    const std::uint32_t number = gpu_number(gpu, entry.host, &brought_[lease.owner].gpus);
    if (number != kNoGpu) scratch_uses_.push_back({number, utilization});
  }
  if (was_idle(lease)) {
    const LeaseText text{std::string(entry.command.substr(0, kLongestText)),
                         std::string(entry.label.substr(0, kLongestText))};
    put(lease, scratch_uses_, &text);
  } else {
    put(lease, scratch_uses_, nullptr);
  }
}

void LeaseTable::merge(const LeaseTable& other) {
  std::vector<std::uint32_t> owners;
  for (const LeaseOwner& owner : other.owners_) {
    owners.push_back(owner_number(owner.uid, owner.user, owner.host));
  }
  std::vector<std::uint32_t> jobs;
  for (std::uint32_t i = 0; i < other.jobs_.size(); ++i)
    jobs.push_back(jobs_.number(other.jobs_[i]));
  std::vector<std::uint32_t> gpus;
  for (const KnownGpu& gpu : other.gpus_) {
    gpus.push_back(gpu_number({gpu.uuid, gpu.index, gpu.name}, gpu.host, nullptr));
  }
  for (CompactLease lease : other.leases_) {
    scratch_uses_.clear();
    for (const LeasedGpu& use : other.uses(lease)) {
      scratch_uses_.push_back({gpus[use.gpu], use.utilization_pct});
    }
    lease.owner = owners[lease.owner];
    lease.job = jobs[lease.job];
    put(lease, scratch_uses_, lease.about == 0 ? nullptr : &other.about(lease));
  }
}

void LeaseTable::settle(const std::vector<HistoryEntry>& live, const std::set<LeaseKey>& elsewhere,
                        TimePoint now) {
  std::set<LeaseKey> keys = elsewhere;
  for (const HistoryEntry& entry : live) {
    EntryView view = view_of(entry);
    view.ending = Ending::running;
    view.ended_ms = view.granted_ms;  // before what is written, which knows more of its GPUs
    take(view);
    keys.insert(key_of(entry));
  }
  std::set<std::pair<std::uint32_t, std::uint64_t>> living;  // by owner
  for (const LeaseKey& key : keys) {
    for (std::uint32_t i = 0; i < owners_.size(); ++i) {
      if (owners_[i].uid == key.uid && owners_[i].host == key.host) {
        living.emplace(i, short_id(key.id));
      }
    }
  }
  for (CompactLease& lease : leases_) {
    if (living.contains({lease.owner, lease.id})) {
      lease.ending = Ending::running;
      lease.ended_ms = std::max(to_ms(now), lease.granted_ms);
      lease.idle_ms = -1;
      for (std::uint32_t i = 0; i < lease.uses; ++i)
        uses_[lease.first_use + i].utilization_pct = -1;
    } else if (lease.ending == Ending::running) {
      lease.ending = Ending::lost;
    }
  }
}

}  // namespace berth
