// Computes the sums of a report; see report.h.
#include "archive/report.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace berth {
namespace {

using std::chrono::milliseconds;

constexpr double kGib = 1024.0 * 1024 * 1024;
constexpr std::size_t kMaxIdleLeases = 10;

struct GroupTotals {
  Figures figures;
  std::vector<float> waited_s;
};

// The smallest value that at least `percent` of the values do not exceed. Reorders the values.
double percentile(std::vector<float>& values, std::size_t percent) {
  const std::size_t rank = (values.size() * percent + 99) / 100;
  const auto position = values.begin() + static_cast<std::ptrdiff_t>(rank - 1);
  std::nth_element(values.begin(), position, values.end());
  return static_cast<double>(*position);
}

Figures finish_totals(GroupTotals& totals) {
  auto& waits = totals.waited_s;
  if (!waits.empty()) {
    const double longest = static_cast<double>(*std::max_element(waits.begin(), waits.end()));
    totals.figures.waits = {percentile(waits, 50), percentile(waits, 95), longest};
  }
  return totals.figures;
}

double hours_between(std::int64_t begin_ms, std::int64_t end_ms) {
  return static_cast<double>(end_ms - begin_ms) / kMsPerHour;
}

class ReportBuilder {
 public:
  ReportBuilder(const LeaseTable& table, const ReportQuery& query);
  void add(const CompactLease& lease);
  Report finish();

 private:
  struct GpuGroup {
    GroupTotals totals;
    std::uint32_t name_index = 0;  // LeaseTable::gpus() with the latest index and name of this GPU
    std::int64_t named_ms = -1;    // the time of that; -1: none yet
    bool is_present = false;       // one of ReportQuery::present
    std::size_t uses = 0;          // how many uses of this GPU count
  };

  // A GPU of a lease. A hostile history has millions of them: see add_cards().
  struct CardUse {
    std::uint32_t lease = 0;     // LeaseTable::leases()[lease]
    std::int32_t power_mw = -1;  // -1: not measured
  };

  bool is_included(const LeasedGpu& use) const { return included_[use.gpu] != 0; }
  bool is_in_report(const CompactLease& lease) const;
  GpuGroup& group_of(const LeasedGpu& use) { return gpu_groups_[gpu_group_by_name_[use.gpu]]; }
  std::int64_t begin_of(const CompactLease& lease) const;
  std::int64_t end_of(const CompactLease& lease) const;
  Amounts hourly_amounts(const CompactLease& lease, const LeasedGpu& use) const;
  void count_lease(GroupTotals& totals, const CompactLease& lease) const;
  void add_days(const Amounts& rate, const CompactLease& lease, std::int64_t begin,
                std::int64_t end);
  void add_card_time(Figures& figures, const GpuGroup& group, const CardTime& time,
                     double factor = 1) const;
  void add_card_days(const GpuGroup& group, std::int64_t begin, std::int64_t end,
                     const CardTime& per_hour);
  std::vector<CardUse> collect_card_uses();
  void add_cards();
  void add_card(GpuGroup& group, std::span<const CardUse> uses);
  void set_capacity();
  double capacity_between(std::int64_t begin, std::int64_t end) const;
  std::size_t day_of(std::int64_t ms) const;
  std::vector<ReportGroup<TimePoint>> make_days();
  std::vector<ReportGroup<GpuIdentity>> make_gpus();
  IdleLease make_idle_lease(const CompactLease& lease) const;

  const LeaseTable& table_;
  std::int64_t since_;
  std::int64_t now_;
  std::int64_t recorded_since_;  // the capacity begins here
  std::size_t gpu_count_ = 0;    // the number of GPUs in the capacity
  std::vector<std::int64_t> midnights_;
  std::vector<char> included_;                    // parallel to LeaseTable::gpus()
  std::vector<std::uint32_t> gpu_group_by_name_;  // the same; entries with one UUID are one group
  std::vector<GpuGroup> gpu_groups_;
  Report report_;
  GroupTotals total_;
  std::vector<std::uint32_t> user_by_owner_;  // see LeaseTable::find_users_of_owners()
  std::vector<GroupTotals> users_;
  std::vector<GroupTotals> jobs_;
  std::vector<GroupTotals> days_;
  // For leases that cover a whole day: the change of the amounts per hour from the day before to
  // each day. With changes instead of sums, a lease of years costs as little time as a short one.
  std::vector<Amounts> rate_changes_;
  std::vector<const CompactLease*> idle_;
};

ReportBuilder::ReportBuilder(const LeaseTable& table, const ReportQuery& query)
    : table_(table),
      since_(to_ms(query.since)),
      now_(to_ms(query.now)),
      recorded_since_(query.history_start ? to_ms(*query.history_start) : now_),
      user_by_owner_(table.find_users_of_owners()),
      users_(table.owners().size()),
      jobs_(table.jobs().size()) {
  report_.since = query.since;
  report_.until = query.now;
  for (const TimePoint midnight : query.midnights) midnights_.push_back(to_ms(midnight));
  days_.resize(std::max<std::size_t>(midnights_.size(), 2) - 1);
  rate_changes_.resize(days_.size() + 1);
  std::unordered_map<std::string_view, std::uint32_t> groups;
  for (const GpuIdentity& gpu : table.gpus()) {
    const auto next = static_cast<std::uint32_t>(groups.size());
    gpu_group_by_name_.push_back(groups.try_emplace(gpu.uuid, next).first->second);
    included_.push_back(!query.includes_gpu || query.includes_gpu(gpu.uuid, gpu.index) ? 1 : 0);
  }
  gpu_groups_.resize(groups.size());
  std::unordered_set<std::string_view> present;
  for (const GpuIdentity& gpu : query.present) {
    if (query.includes_gpu && !query.includes_gpu(gpu.uuid, gpu.index)) continue;
    present.insert(gpu.uuid);
    const auto group = groups.find(gpu.uuid);
    if (group != groups.end()) gpu_groups_[group->second].is_present = true;
  }
  gpu_count_ = present.size();
  if (!query.history_start) {
    for (const CompactLease& lease : table.leases())
      recorded_since_ = std::min(recorded_since_, lease.granted_ms);
  }
  recorded_since_ = std::max(recorded_since_, since_);
  // Leases from the harbour have no index: they are included if any index of the same GPU is.
  for (std::size_t i = 0; i < included_.size(); ++i) {
    if (included_[i] != 0 || !table.gpus()[i].index.empty()) continue;
    for (std::size_t j = 0; j < included_.size(); ++j) {
      if (included_[j] != 0 && gpu_group_by_name_[j] == gpu_group_by_name_[i]) included_[i] = 1;
    }
  }
}

std::size_t ReportBuilder::day_of(std::int64_t ms) const {
  const auto after = std::upper_bound(midnights_.begin(), midnights_.end(), ms);
  const auto day =
      static_cast<std::size_t>(std::max<std::ptrdiff_t>(after - midnights_.begin(), 1));
  return std::min(day - 1, days_.size() - 1);
}

// Measurements are for the whole lease, so they count evenly for each hour of it.
Amounts ReportBuilder::hourly_amounts(const CompactLease& lease, const LeasedGpu& use) const {
  Amounts rate;
  if (lease.exclusive()) {
    rate.gpu_hours = 1;
    if (lease.idle_ms >= 0) {
      const std::int64_t lasted = std::max<std::int64_t>(lease.ended_ms - lease.granted_ms, 1);
      rate.idle_measured = 1;
      rate.idle = static_cast<double>(lease.idle_ms) / static_cast<double>(lasted);
    }
  } else {
    rate.shared_gpu_hours = 1;
    rate.shared_gib_hours = static_cast<double>(lease.memory) / kGib;
  }
  if (use.utilization_pct >= 0) {
    rate.utilization_measured = 1;
    rate.utilized = use.utilization_pct / 100.0;
  }
  return rate;
}

void ReportBuilder::count_lease(GroupTotals& totals, const CompactLease& lease) const {
  ++totals.figures.leases;
  if (lease.ending == Ending::running) ++totals.figures.running;
  if (lease.ending == Ending::lost) ++totals.figures.lost;
  if (lease.granted_ms >= since_) totals.waited_s.push_back(lease.waited_s);
}

void ReportBuilder::add_days(const Amounts& rate, const CompactLease& lease, std::int64_t begin,
                             std::int64_t end) {
  if (midnights_.size() < 2) return;
  const std::size_t first = day_of(begin);
  const std::size_t last = day_of(end);
  if (lease.granted_ms >= since_) count_lease(days_[first], lease);
  if (first == last) {
    days_[first].figures.add(rate, hours_between(begin, end));
    return;
  }
  days_[first].figures.add(rate, hours_between(begin, midnights_[first + 1]));
  days_[last].figures.add(rate, hours_between(midnights_[last], end));
  rate_changes_[first + 1].add(rate);
  rate_changes_[last].add(rate, -1);
}

bool ReportBuilder::is_in_report(const CompactLease& lease) const {
  if (lease.ended_ms < since_ || lease.granted_ms > now_) return false;
  const auto uses = table_.uses(lease);
  return uses.empty() || std::any_of(uses.begin(), uses.end(),
                                     [this](const LeasedGpu& use) { return is_included(use); });
}

// The part of the lease that lies in the period.
std::int64_t ReportBuilder::begin_of(const CompactLease& lease) const {
  return std::max(lease.granted_ms, since_);
}

std::int64_t ReportBuilder::end_of(const CompactLease& lease) const {
  return std::max(std::min(lease.ended_ms, now_), begin_of(lease));
}

void ReportBuilder::add(const CompactLease& lease) {
  if (!is_in_report(lease)) return;
  if (lease.nested) {
    ++report_.nested;
    return;
  }
  Amounts rate;
  const std::int64_t begin = begin_of(lease);
  const std::int64_t end = end_of(lease);
  const double hours = hours_between(begin, end);
  for (const LeasedGpu& use : table_.uses(lease)) {
    if (!is_included(use)) continue;
    const Amounts one = hourly_amounts(lease, use);
    rate.add(one);
    GpuGroup& group = group_of(use);
    group.totals.figures.add(one, hours);
    count_lease(group.totals, lease);
    ++group.uses;
    // Use the latest name. Leases from the harbour have no name.
    const bool named = !table_.gpus()[use.gpu].index.empty();
    if (group.named_ms < 0 || (named && lease.granted_ms > group.named_ms)) {
      group.name_index = use.gpu;
      group.named_ms = named ? lease.granted_ms : 0;
    }
  }
  for (GroupTotals* totals : {&total_, &users_[user_by_owner_[lease.owner]], &jobs_[lease.job]}) {
    totals->figures.add(rate, hours);
    count_lease(*totals, lease);
  }
  add_days(rate, lease, begin, end);
  if (was_idle(lease)) idle_.push_back(&lease);
}

void ReportBuilder::add_card_time(Figures& figures, const GpuGroup& group, const CardTime& time,
                                  double factor) const {
  figures.cards.add(time, factor);
  if (group.is_present) figures.occupied_hours += time.recorded_hours * factor;
}

// Unlike add_days(), divides the time at each midnight: the intervals of a card do not overlap, so
// there are few.
void ReportBuilder::add_card_days(const GpuGroup& group, std::int64_t begin, std::int64_t end,
                                  const CardTime& per_hour) {
  if (midnights_.size() < 2) return;
  const std::size_t last = day_of(end);
  for (std::size_t day = day_of(begin); day <= last; ++day) {
    const std::int64_t day_end = day == last ? end : midnights_[day + 1];
    add_card_time(days_[day].figures, group, per_hour, hours_between(begin, day_end));
    begin = day_end;
  }
}

// The uses that add() has counted, those of the first GPU first.
std::vector<ReportBuilder::CardUse> ReportBuilder::collect_card_uses() {
  std::vector<std::size_t> next{0};  // where the next use of each group goes
  for (const GpuGroup& group : gpu_groups_) next.push_back(next.back() + group.uses);
  std::vector<CardUse> all(next.back());
  std::uint32_t index = 0;
  for (const CompactLease& lease : table_.leases()) {
    if (!lease.nested && is_in_report(lease)) {
      for (const LeasedGpu& use : table_.uses(lease)) {
        if (is_included(use)) all[next[gpu_group_by_name_[use.gpu]]++] = {index, use.power_mw};
      }
    }
    ++index;
  }
  return all;
}

void ReportBuilder::add_cards() {
  const std::vector<CardUse> all = collect_card_uses();
  std::span<const CardUse> rest = all;
  for (GpuGroup& group : gpu_groups_) {
    add_card(group, rest.first(group.uses));
    rest = rest.subspan(group.uses);
  }
}

void ReportBuilder::add_card(GpuGroup& group, std::span<const CardUse> uses) {
  std::vector<CardLease> card_leases;
  card_leases.reserve(uses.size());
  for (const CardUse& use : uses) {
    const CompactLease& lease = table_.leases()[use.lease];
    card_leases.push_back({begin_of(lease), end_of(lease), use.power_mw});
  }
  const std::vector<CardTime> shares = divide_card_time(
      card_leases, recorded_since_,
      [&](std::int64_t begin, std::int64_t end, const CardTime& per_hour) {
        add_card_time(group.totals.figures, group, per_hour, hours_between(begin, end));
        add_card_days(group, begin, end, per_hour);
      });
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const CompactLease& lease = table_.leases()[uses[i].lease];
    add_card_time(users_[user_by_owner_[lease.owner]].figures, group, shares[i]);
    add_card_time(jobs_[lease.job].figures, group, shares[i]);
  }
  total_.figures.cards.add(group.totals.figures.cards);
  total_.figures.occupied_hours += group.totals.figures.occupied_hours;
}

double ReportBuilder::capacity_between(std::int64_t begin, std::int64_t end) const {
  begin = std::max(begin, recorded_since_);
  end = std::min(end, now_);
  return end > begin ? hours_between(begin, end) : 0;
}

void ReportBuilder::set_capacity() {
  const double period = capacity_between(since_, now_);
  const auto gpus = static_cast<double>(gpu_count_);
  total_.figures.capacity_hours = gpus * period;
  for (GroupTotals& user : users_) user.figures.capacity_hours = gpus * period;
  for (GroupTotals& job : jobs_) job.figures.capacity_hours = gpus * period;
  for (GpuGroup& group : gpu_groups_)
    group.totals.figures.capacity_hours = group.is_present ? period : 0;
  for (std::size_t i = 0; i + 1 < midnights_.size(); ++i)
    days_[i].figures.capacity_hours = gpus * capacity_between(midnights_[i], midnights_[i + 1]);
}

std::vector<ReportGroup<TimePoint>> ReportBuilder::make_days() {
  std::vector<ReportGroup<TimePoint>> days;
  Amounts whole_day;  // per hour, of the leases that cover the whole day
  for (std::size_t i = 0; i + 1 < midnights_.size(); ++i) {
    whole_day.add(rate_changes_[i]);
    days_[i].figures.add(whole_day, hours_between(midnights_[i], midnights_[i + 1]));
    Figures figures = finish_totals(days_[i]);
    if (days.empty() && figures.leases == 0 && figures.held_hours() <= 0) continue;
    days.push_back({TimePoint(milliseconds(midnights_[i])), figures});
  }
  return days;
}

std::vector<ReportGroup<GpuIdentity>> ReportBuilder::make_gpus() {
  std::vector<ReportGroup<GpuIdentity>> gpus;
  for (GpuGroup& group : gpu_groups_) {
    if (group.totals.figures.leases == 0) continue;
    gpus.push_back({table_.gpus()[group.name_index], finish_totals(group.totals)});
  }
  std::sort(gpus.begin(), gpus.end(),
            [](const auto& a, const auto& b) { return is_listed_before(a.key, b.key); });
  return gpus;
}

IdleLease ReportBuilder::make_idle_lease(const CompactLease& lease) const {
  IdleLease idle;
  idle.owner = table_.owners()[lease.owner];
  idle.job = table_.jobs()[lease.job];
  idle.text = table_.text(lease);
  for (const LeasedGpu& use : table_.uses(lease)) idle.gpus.push_back(table_.gpus()[use.gpu]);
  idle.exclusive = lease.exclusive();
  idle.granted = TimePoint(milliseconds(lease.granted_ms));
  idle.lasted = milliseconds(lease.ended_ms - lease.granted_ms);
  idle.idle = milliseconds(lease.idle_ms);
  return idle;
}

const std::string& sort_key(const std::string& job) {
  return job;
}
std::pair<std::string, uid_t> sort_key(const LeaseOwner& user) {
  return {user.user, user.uid};
}

template <class Key>
void sort_by_hours(std::vector<ReportGroup<Key>>& groups) {
  std::sort(groups.begin(), groups.end(), [](const ReportGroup<Key>& a, const ReportGroup<Key>& b) {
    const double difference = a.figures.held_hours() - b.figures.held_hours();
    if (difference != 0) return difference > 0;
    return std::tuple(b.figures.leases, sort_key(a.key)) <
           std::tuple(a.figures.leases, sort_key(b.key));
  });
}

Report ReportBuilder::finish() {
  add_cards();
  set_capacity();
  report_.recorded_since = TimePoint(milliseconds(recorded_since_));
  report_.gpu_count = gpu_count_;
  report_.total = finish_totals(total_);
  for (std::uint32_t i = 0; i < users_.size(); ++i) {
    if (users_[i].figures.leases > 0) {
      report_.users.push_back({table_.owners()[i], finish_totals(users_[i])});
    }
  }
  for (std::uint32_t i = 0; i < table_.jobs().size(); ++i) {
    if (jobs_[i].figures.leases > 0) {
      report_.jobs.push_back({table_.jobs()[i], finish_totals(jobs_[i])});
    }
  }
  sort_by_hours(report_.users);
  sort_by_hours(report_.jobs);
  report_.gpus = make_gpus();
  report_.days = make_days();
  const auto is_worse = [](const CompactLease* a, const CompactLease* b) {
    const auto wasted_gpu_time = [](const CompactLease* lease) {
      return static_cast<double>(lease->idle_ms) * lease->uses;
    };
    return std::tuple(wasted_gpu_time(b), a->granted_ms, a->id) <
           std::tuple(wasted_gpu_time(a), b->granted_ms, b->id);
  };
  std::sort(idle_.begin(), idle_.end(), is_worse);
  idle_.resize(std::min(idle_.size(), kMaxIdleLeases));
  for (const CompactLease* lease : idle_) report_.idle.push_back(make_idle_lease(*lease));
  return std::move(report_);
}

}  // namespace

void Amounts::add(const Amounts& other, double factor) {
  gpu_hours += other.gpu_hours * factor;
  shared_gpu_hours += other.shared_gpu_hours * factor;
  shared_gib_hours += other.shared_gib_hours * factor;
  utilized += other.utilized * factor;
  utilization_measured += other.utilization_measured * factor;
  idle += other.idle * factor;
  idle_measured += other.idle_measured * factor;
}

std::optional<double> Figures::occupancy_pct() const {
  if (capacity_hours <= 0) return std::nullopt;
  return 100 * occupied_hours / capacity_hours;
}

std::optional<double> Figures::energy_kwh() const {
  if (cards.measured_hours <= 0) return std::nullopt;
  return cards.energy_kwh;
}

std::optional<double> Figures::utilization_pct() const {
  if (utilization_measured <= 0) return std::nullopt;
  return 100 * utilized / utilization_measured;
}

std::optional<double> Figures::idle_pct() const {
  if (idle_measured <= 0) return std::nullopt;
  return 100 * idle / idle_measured;
}

Report make_report(const LeaseTable& table, const ReportQuery& query) {
  ReportBuilder builder(table, query);
  for (const CompactLease& lease : table.leases()) builder.add(lease);
  return builder.finish();
}

}  // namespace berth
