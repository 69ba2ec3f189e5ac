// The sums of a report; see report.h.
#include "archive/report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace berth {
namespace {

using std::chrono::milliseconds;

constexpr double kMsPerHour = 3'600'000;
constexpr double kGib = 1024.0 * 1024 * 1024;
constexpr std::size_t kMostIdle = 10;

struct GroupTotals {
  Figures figures;
  std::vector<float> waited_s;
};

// The smallest that so many of a hundred do not exceed.
double percentile(std::vector<float>& values, std::size_t of_hundred) {
  const std::size_t rank = (values.size() * of_hundred + 99) / 100;
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(rank - 1);
  std::nth_element(values.begin(), place, values.end());
  return static_cast<double>(*place);
}

Figures finished(GroupTotals& growing) {
  auto& waited = growing.waited_s;
  if (!waited.empty()) {
    const double longest = static_cast<double>(*std::max_element(waited.begin(), waited.end()));
    growing.figures.waits = {percentile(waited, 50), percentile(waited, 95), longest};
  }
  return growing.figures;
}

// "10" behind "9", and "0:1" (MIG) behind "0".
std::pair<unsigned, std::string_view> card_of(std::string_view index) {
  unsigned card = ~0U;
  const auto [rest, problem] = std::from_chars(index.data(), index.data() + index.size(), card);
  return {card, index.substr(static_cast<std::size_t>(rest - index.data()))};
}

class ReportBuilder {
 public:
  ReportBuilder(const LeaseTable& table, const ReportQuery& query);
  void add(const CompactLease& lease);
  Report finish();

 private:
  struct GpuGroup {
    GroupTotals growing;
    std::uint32_t shown = 0;  // which of the names that it had is the last
    std::int64_t seen_ms = -1;
  };

  Amounts per_hour(const CompactLease& lease, const LeasedGpu& use) const;
  void count(GroupTotals& growing, const CompactLease& lease) const;
  void add_days(const Amounts& rate, const CompactLease& lease, std::int64_t begin, std::int64_t end);
  std::size_t day_of(std::int64_t ms) const;
  std::vector<Part<TimePoint>> days();
  std::vector<Part<KnownGpu>> gpus();
  IdleLease idle_lease(const CompactLease& lease) const;

  const LeaseTable& table_;
  std::int64_t since_;
  std::int64_t now_;
  std::vector<std::int64_t> midnights_;
  std::vector<char> wanted_;             // of the GPUs' names in the table
  std::vector<std::uint32_t> group_of_;  // of each name, that of its UUID
  std::vector<GpuGroup> gpu_groups_;
  Report report_;
  GroupTotals total_;
  std::vector<std::uint32_t> user_of_;  // of each owner, the first that is the same user
  std::vector<GroupTotals> users_;
  std::vector<GroupTotals> jobs_;
  std::vector<GroupTotals> days_;
  // What each day has more per hour, from end to end, than the one before it: so that a lease of
  // years costs no more than another.
  std::vector<Amounts> change_;
  std::vector<const CompactLease*> idle_;
};

ReportBuilder::ReportBuilder(const LeaseTable& table, const ReportQuery& query)
    : table_(table),
      since_(to_ms(query.since)),
      now_(to_ms(query.now)),
      users_(table.owners().size()),
      jobs_(table.jobs().size()) {
  report_.since = query.since;
  report_.until = query.now;
  for (const TimePoint midnight : query.midnights) midnights_.push_back(to_ms(midnight));
  days_.resize(std::max<std::size_t>(midnights_.size(), 2) - 1);
  change_.resize(days_.size() + 1);
  std::map<std::pair<uid_t, std::string_view>, std::uint32_t> users;
  for (const LeaseOwner& owner : table.owners()) {
    const auto next = static_cast<std::uint32_t>(user_of_.size());
    const uid_t uid = owner.user.empty() ? owner.uid : 0;  // which is another on each host
    user_of_.push_back(users.try_emplace({uid, owner.user}, next).first->second);
  }
  std::unordered_map<std::string_view, std::uint32_t> groups;
  for (const KnownGpu& gpu : table.gpus()) {
    const auto next = static_cast<std::uint32_t>(groups.size());
    group_of_.push_back(groups.try_emplace(gpu.uuid, next).first->second);
    wanted_.push_back(!query.wants_gpu || query.wants_gpu(gpu.uuid, gpu.index) ? 1 : 0);
  }
  gpu_groups_.resize(groups.size());
  // The harbour knows no index: then any that the same GPU had will do.
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    if (wanted_[i] != 0 || !table.gpus()[i].index.empty()) continue;
    for (std::size_t j = 0; j < wanted_.size(); ++j) {
      if (wanted_[j] != 0 && group_of_[j] == group_of_[i]) wanted_[i] = 1;
    }
  }
}

std::size_t ReportBuilder::day_of(std::int64_t ms) const {
  const auto after = std::upper_bound(midnights_.begin(), midnights_.end(), ms);
  const auto day =
      static_cast<std::size_t>(std::max<std::ptrdiff_t>(after - midnights_.begin(), 1));
  return std::min(day - 1, days_.size() - 1);
}

// What was measured of the whole lease is taken to be the same at each moment of it.
Amounts ReportBuilder::per_hour(const CompactLease& lease, const LeasedGpu& use) const {
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

void ReportBuilder::count(GroupTotals& growing, const CompactLease& lease) const {
  ++growing.figures.leases;
  if (lease.ending == Ending::running) ++growing.figures.running;
  if (lease.ending == Ending::lost) ++growing.figures.lost;
  if (lease.granted_ms >= since_) growing.waited_s.push_back(lease.waited_s);
}

void ReportBuilder::add_days(const Amounts& rate, const CompactLease& lease, std::int64_t begin,
                      std::int64_t end) {
  if (midnights_.size() < 2) return;
  const auto hours = [](std::int64_t from, std::int64_t to) {
    return static_cast<double>(to - from) / kMsPerHour;
  };
  const std::size_t first = day_of(begin);
  const std::size_t last = day_of(end);
  if (lease.granted_ms >= since_) count(days_[first], lease);
  if (first == last) {
    days_[first].figures.add(rate, hours(begin, end));
    return;
  }
  days_[first].figures.add(rate, hours(begin, midnights_[first + 1]));
  days_[last].figures.add(rate, hours(midnights_[last], end));
  change_[first + 1].add(rate);
  change_[last].add(rate, -1);
}

void ReportBuilder::add(const CompactLease& lease) {
  if (lease.ended_ms < since_ || lease.granted_ms > now_) return;
  Amounts rate;
  const auto uses = table_.uses(lease);
  const auto wanted = [&](const LeasedGpu& use) { return wanted_[use.gpu] != 0; };
  if (!uses.empty() && std::none_of(uses.begin(), uses.end(), wanted)) return;
  if (lease.nested) {
    ++report_.nested;
    return;
  }
  const std::int64_t begin = std::max(lease.granted_ms, since_);
  const std::int64_t end = std::max(std::min(lease.ended_ms, now_), begin);
  const double hours = static_cast<double>(end - begin) / kMsPerHour;
  for (const LeasedGpu& use : uses) {
    if (!wanted(use)) continue;
    const Amounts one = per_hour(lease, use);
    rate.add(one);
    GpuGroup& group = gpu_groups_[group_of_[use.gpu]];
    group.growing.figures.add(one, hours);
    count(group.growing, lease);
    // As it was named last; the harbour knows no names.
    const bool named = !table_.gpus()[use.gpu].index.empty();
    if (group.seen_ms < 0 || (named && lease.granted_ms > group.seen_ms)) {
      group.shown = use.gpu;
      group.seen_ms = named ? lease.granted_ms : 0;
    }
  }
  for (GroupTotals* growing : {&total_, &users_[user_of_[lease.owner]], &jobs_[lease.job]}) {
    growing->figures.add(rate, hours);
    count(*growing, lease);
  }
  add_days(rate, lease, begin, end);
  if (was_idle(lease)) idle_.push_back(&lease);
}

std::vector<Part<TimePoint>> ReportBuilder::days() {
  std::vector<Part<TimePoint>> days;
  Amounts whole_day;  // of those that neither begin nor end on it
  for (std::size_t i = 0; i + 1 < midnights_.size(); ++i) {
    whole_day.add(change_[i]);
    days_[i].figures.add(whole_day,
                         static_cast<double>(midnights_[i + 1] - midnights_[i]) / kMsPerHour);
    Figures figures = finished(days_[i]);
    if (days.empty() && figures.leases == 0 && figures.held_hours() <= 0) continue;
    days.push_back({TimePoint(milliseconds(midnights_[i])), figures});
  }
  return days;
}

std::vector<Part<KnownGpu>> ReportBuilder::gpus() {
  std::vector<Part<KnownGpu>> gpus;
  for (GpuGroup& group : gpu_groups_) {
    if (group.growing.figures.leases == 0) continue;
    gpus.push_back({table_.gpus()[group.shown], finished(group.growing)});
  }
  std::sort(gpus.begin(), gpus.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.of.host, card_of(a.of.index), a.of.uuid) <
           std::tuple(b.of.host, card_of(b.of.index), b.of.uuid);
  });
  return gpus;
}

IdleLease ReportBuilder::idle_lease(const CompactLease& lease) const {
  IdleLease idle;
  idle.owner = table_.owners()[lease.owner];
  idle.job = table_.jobs()[lease.job];
  idle.about = table_.about(lease);
  for (const LeasedGpu& use : table_.uses(lease)) idle.gpus.push_back(table_.gpus()[use.gpu]);
  idle.exclusive = lease.exclusive();
  idle.granted = TimePoint(milliseconds(lease.granted_ms));
  idle.lasted = milliseconds(lease.ended_ms - lease.granted_ms);
  idle.idle = milliseconds(lease.idle_ms);
  return idle;
}

const std::string& order_of(const std::string& job) {
  return job;
}
std::pair<std::string, uid_t> order_of(const LeaseOwner& user) {
  return {user.user, user.uid};
}

template <class Of>
void sort_by_hours(std::vector<Part<Of>>& parts) {
  std::sort(parts.begin(), parts.end(), [](const Part<Of>& a, const Part<Of>& b) {
    const double more = a.figures.held_hours() - b.figures.held_hours();
    if (more != 0) return more > 0;
    return std::tuple(b.figures.leases, order_of(a.of)) <
           std::tuple(a.figures.leases, order_of(b.of));
  });
}

Report ReportBuilder::finish() {
  report_.total = finished(total_);
  for (std::uint32_t i = 0; i < users_.size(); ++i) {
    if (users_[i].figures.leases > 0) {
      report_.users.push_back({table_.owners()[i], finished(users_[i])});
    }
  }
  for (std::uint32_t i = 0; i < table_.jobs().size(); ++i) {
    if (jobs_[i].figures.leases > 0) {
      report_.jobs.push_back({table_.jobs()[i], finished(jobs_[i])});
    }
  }
  sort_by_hours(report_.users);
  sort_by_hours(report_.jobs);
  report_.gpus = gpus();
  report_.days = days();
  const auto worse = [](const CompactLease* a, const CompactLease* b) {
    const auto wasted = [](const CompactLease* lease) {
      return static_cast<double>(lease->idle_ms) * lease->uses;
    };
    return std::tuple(wasted(b), a->granted_ms, a->id) <
           std::tuple(wasted(a), b->granted_ms, b->id);
  };
  std::sort(idle_.begin(), idle_.end(), worse);
  idle_.resize(std::min(idle_.size(), kMostIdle));
  for (const CompactLease* lease : idle_) report_.idle.push_back(idle_lease(*lease));
  return std::move(report_);
}

}  // namespace

void Amounts::add(const Amounts& other, double times) {
  gpu_hours += other.gpu_hours * times;
  shared_gpu_hours += other.shared_gpu_hours * times;
  shared_gib_hours += other.shared_gib_hours * times;
  utilized += other.utilized * times;
  utilization_measured += other.utilization_measured * times;
  idle += other.idle * times;
  idle_measured += other.idle_measured * times;
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
  ReportBuilder adding(table, query);
  for (const CompactLease& lease : table.leases()) adding.add(lease);
  return adding.finish();
}

}  // namespace berth
