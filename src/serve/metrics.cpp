// The samples, family by family; see metrics.h.
#include "serve/metrics.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fmt/format.h>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "base/users.h"

namespace berth {
namespace {

constexpr std::array kStates{GpuState::free,     GpuState::leased,  GpuState::shared,
                             GpuState::stranger, GpuState::drained, GpuState::lost,
                             GpuState::unknown};
constexpr std::array kEndings{Ending::exited, Ending::killed, Ending::released, Ending::lost};

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(std::chrono::duration_cast<std::chrono::milliseconds>(time))
      .count();
}

// Families in the order in which they are begun; one without samples is left out.
class Exposition {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    head_ = fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
  }
  // `labels` as they stand between the braces.
  template <class Value>
  void sample(std::string_view labels, Value value, std::string_view suffix = "") {
    text_ += std::exchange(head_, {});
    text_ += name_;
    text_ += suffix;
    if (!labels.empty()) {
      text_ += '{';
      text_ += labels;
      text_ += '}';
    }
    text_ += fmt::format(" {}\n", value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string name_;
  std::string head_;
  std::string text_;
};

std::string label(std::string_view name, std::string_view value) {
  return fmt::format("{}=\"{}\"", name, label_value(value));
}

// A GPU and what stands before its braces' end.
struct LabelledGpu {
  const GpuStatus& status;
  const Status& host;
  std::string labels;
};

struct UserFigures {
  std::size_t leases = 0;
  std::set<std::string> gpus;
  std::size_t tickets = 0;
  std::size_t idle = 0;
};

// The leases that take up GPUs: not those inside of another that lives.
std::vector<const Record*> outer_leases(const Status& host) {
  std::set<std::string_view> living;
  for (const Record& lease : host.leases) living.insert(lease.id);
  std::vector<const Record*> outer;
  for (const Record& lease : host.leases) {
    if (!living.contains(lease.within)) outer.push_back(&lease);
  }
  return outer;
}

// By the user's name.
std::map<std::string, UserFigures> users_of(const Status& host, TimePoint now) {
  std::map<std::string, UserFigures> users;
  for (const Record* lease : outer_leases(host)) {
    UserFigures& user = users[user_name(lease->uid)];
    ++user.leases;
    user.gpus.insert(lease->uuids.begin(), lease->uuids.end());
    if (idle_since(*lease, now)) ++user.idle;
  }
  for (const TicketStatus& ticket : host.queue) ++users[user_name(ticket.record.uid)].tickets;
  return users;
}

// Who holds all of it has reserved all of it.
std::optional<std::uint64_t> reserved(const LabelledGpu& gpu) {
  const GpuWithLeases& placed = gpu.status.placed;
  if (!placed.leases.empty() && !placed.shared) {
    if (!placed.gpu.memory_total) return std::nullopt;
    return placed.gpu.memory_total->count;
  }
  std::uint64_t sum = 0;
  for (const Record& lease : gpu.host.leases) {
    const bool here =
        std::find(placed.leases.begin(), placed.leases.end(), lease.id) != placed.leases.end();
    if (here) sum = capped_sum(sum, lease.request.memory.value_or(Bytes{}).count);
  }
  return sum;
}

std::optional<std::size_t> processes(const LabelledGpu& gpu) {
  if (gpu.status.placed.gpu.health != Health::ok) return std::nullopt;
  return gpu.status.placed.processes.size();
}

// Memory that nobody accounts for is somebody's, too.
std::optional<std::size_t> strangers(const GpuWithLeases& placed) {
  if (placed.gpu.health != Health::ok) return std::nullopt;
  const auto count = std::count_if(placed.processes.begin(), placed.processes.end(),
                                   [](const AttributedProcess& one) { return one.stranger(); });
  const bool hidden = count == 0 && placed.leases.empty() && placed.unexplained;
  return static_cast<std::size_t>(count) + (hidden ? 1 : 0);
}

std::optional<double> ratio(const std::optional<unsigned>& percent) {
  return percent ? std::optional(*percent / 100.0) : std::nullopt;
}

std::optional<std::uint64_t> bytes(const std::optional<Bytes>& size) {
  return size ? std::optional(size->count) : std::nullopt;
}

class Metrics {
 public:
  explicit Metrics(const MetricsInput& input);
  std::string text();

 private:
  void about_looking();
  void about_hosts();
  void about_gpus();
  void about_users();
  void about_queue();
  void about_the_past();

  // One sample for each GPU for which `value` gives one.
  template <class Get>
  void each_gpu(std::string_view name, std::string_view help, const Get& get) {
    out_.family(name, "gauge", help);
    for (const LabelledGpu& gpu : gpus_) {
      if (const auto value = get(gpu)) out_.sample(gpu.labels, *value);
    }
  }

  const MetricsInput& in_;
  Exposition out_;
  std::vector<LabelledGpu> gpus_;
};

Metrics::Metrics(const MetricsInput& input) : in_(input) {
  if (!input.success) return;
  for (const Status& host : input.hosts) {
    for (const GpuStatus& gpu : host.gpus) {
      const Gpu& one = gpu.placed.gpu;
      gpus_.push_back(
          {gpu, host,
           fmt::format("{},{},{},{}", label("host", host.host), label("gpu", to_string(one.index)),
                       label("uuid", one.uuid.value_or("")),
                       label("name", one.name.value_or("")))});
    }
  }
}

void Metrics::about_looking() {
  out_.family("berth_build_info", "gauge", "Which berth serves this.");
  out_.sample(label("version", in_.version), 1);
  out_.family("berth_start_time_seconds", "gauge",
              "When this server began to count, in seconds since 1970.");
  out_.sample("", seconds(in_.tally.began().time_since_epoch()));
  out_.family("berth_look_success", "gauge",
              "1 if driver and harbour could be looked at the last time, else 0.");
  out_.sample("", in_.success ? 1 : 0);
  out_.family("berth_look_timestamp_seconds", "gauge",
              "When that last succeeded, in seconds since 1970.");
  if (in_.looked) out_.sample("", seconds(in_.looked->time_since_epoch()));
}

void Metrics::about_hosts() {
  out_.family("berth_host_up", "gauge", "1 if something is known of the host's GPUs, else 0.");
  for (const Status& host : in_.hosts) {
    out_.sample(label("host", host.host), host.problem.empty() ? 1 : 0);
  }
  out_.family("berth_host_age_seconds", "gauge",
              "How old is what the host's driver said; 0 where this server looks itself.");
  for (const Status& host : in_.hosts) {
    if (host.age) out_.sample(label("host", host.host), host.age->count());
    if (!host.elsewhere) out_.sample(label("host", host.host), 0);
  }
  out_.family("berth_host_info", "gauge", "The version of the host's driver.");
  for (const Status& host : in_.hosts) {
    if (!host.driver) continue;
    out_.sample(fmt::format("{},{},simulated=\"{}\"", label("host", host.host),
                            label("driver", *host.driver), host.simulated),
                1);
  }
}

void Metrics::about_gpus() {
  out_.family("berth_gpu_state", "gauge", "1 for the state that the GPU is in, 0 for the others.");
  for (const LabelledGpu& gpu : gpus_) {
    for (const GpuState state : kStates) {
      out_.sample(fmt::format("{},state=\"{}\"", gpu.labels, to_string(state)),
                  gpu.status.judgement.state == state ? 1 : 0);
    }
  }
  const auto driver = [](const LabelledGpu& gpu) -> const Gpu& { return gpu.status.placed.gpu; };
  each_gpu("berth_gpu_memory_bytes", "The GPU's memory.",
           [&](const auto& gpu) { return bytes(driver(gpu).memory_total); });
  each_gpu("berth_gpu_memory_used_bytes", "What is in use of it, by whomever.",
           [&](const auto& gpu) { return bytes(driver(gpu).memory_used); });
  each_gpu("berth_gpu_memory_reserved_bytes",
           "What leases have reserved of it; all, if one has the GPU alone.", reserved);
  each_gpu("berth_gpu_utilization_ratio", "How busy it was lately, from 0 to 1.",
           [&](const auto& gpu) { return ratio(driver(gpu).utilization_pct); });
  each_gpu("berth_gpu_memory_utilization_ratio", "How busy its memory was lately, from 0 to 1.",
           [&](const auto& gpu) { return ratio(driver(gpu).memory_utilization_pct); });
  each_gpu("berth_gpu_temperature_celsius", "Its temperature.",
           [&](const auto& gpu) { return driver(gpu).temperature_c; });
  each_gpu("berth_gpu_power_watts", "What it draws.",
           [&](const auto& gpu) { return driver(gpu).power_w; });
  each_gpu("berth_gpu_processes", "Processes on it, displays included.", processes);
  each_gpu("berth_gpu_strangers",
           "Processes that compute on it without a lease; memory that none accounts for is one.",
           [](const auto& gpu) { return strangers(gpu.status.placed); });
  each_gpu("berth_gpu_leases", "Leases that hold it, or a part of it.",
           [](const auto& gpu) { return std::optional(gpu.status.placed.leases.size()); });
}

void Metrics::about_users() {
  struct Of {
    std::string labels;
    UserFigures figures;
    bool elsewhere = false;
  };
  std::vector<Of> all;
  for (const Status& host : in_.hosts) {
    for (auto& [name, figures] : users_of(host, in_.now)) {
      all.push_back({fmt::format("{},{}", label("host", host.host), label("user", name)),
                     std::move(figures), host.elsewhere});
    }
  }
  out_.family("berth_user_leases", "gauge", "Leases that the user has now.");
  for (const Of& user : all) out_.sample(user.labels, user.figures.leases);
  out_.family("berth_user_gpus", "gauge", "GPUs that these hold, or a part of them.");
  for (const Of& user : all) out_.sample(user.labels, user.figures.gpus.size());
  out_.family("berth_user_tickets", "gauge", "Requests of the user that wait.");
  for (const Of& user : all) out_.sample(user.labels, user.figures.tickets);
  out_.family("berth_user_idle_leases", "gauge",
              "Leases whose GPUs nobody has utilized for 10 minutes or more.");
  for (const Of& user : all) {
    // Whether they are used, only their own host can tell.
    if (!user.elsewhere) out_.sample(user.labels, user.figures.idle);
  }
}

void Metrics::about_queue() {
  out_.family("berth_queue_length", "gauge", "Requests that wait.");
  for (const Status& host : in_.hosts) out_.sample(label("host", host.host), host.queue.size());
  out_.family("berth_queue_oldest_seconds", "gauge", "For how long the oldest of them has waited.");
  for (const Status& host : in_.hosts) {
    const auto first = std::min_element(
        host.queue.begin(), host.queue.end(),
        [](const auto& a, const auto& b) { return a.record.since < b.record.since; });
    if (first == host.queue.end()) continue;
    out_.sample(label("host", host.host), std::max(0.0, seconds(in_.now - first->record.since)));
  }
  out_.family("berth_idle_leases", "gauge",
              "Leases whose GPUs nobody has utilized for 10 minutes or more.");
  for (const Status& host : in_.hosts) {
    if (host.elsewhere) continue;
    const auto outer = outer_leases(host);
    const auto idle = std::count_if(outer.begin(), outer.end(), [&](const Record* lease) {
      return idle_since(*lease, in_.now).has_value();
    });
    out_.sample(label("host", host.host), idle);
  }
  out_.family("berth_strangers", "gauge",
              "Processes that compute without a lease, on the GPUs that can be looked at.");
  for (const Status& host : in_.hosts) {
    if (!host.problem.empty()) continue;
    std::size_t sum = 0;
    for (const GpuStatus& gpu : host.gpus) sum += strangers(gpu.placed).value_or(0);
    out_.sample(label("host", host.host), sum);
  }
}

void Metrics::about_the_past() {
  const auto& hosts = in_.tally.hosts();
  out_.family("berth_grants_total", "counter", "Leases that were granted.");
  for (const auto& [host, tally] : hosts) out_.sample(label("host", host), tally.grants);
  out_.family("berth_lease_endings_total", "counter", "Leases that have ended, by how.");
  for (const auto& [host, tally] : hosts) {
    for (const Ending ending : kEndings) {
      const auto count = tally.endings.find(ending);
      out_.sample(fmt::format("{},ending=\"{}\"", label("host", host), ending_word(ending)),
                  count == tally.endings.end() ? 0 : count->second);
    }
  }
  out_.family("berth_wait_seconds", "histogram", "How long those that were granted had waited.");
  for (const auto& [host, tally] : hosts) {
    std::uint64_t below = 0;
    const WaitHistogram& waits = tally.waits;
    for (std::size_t i = 0; i < WaitHistogram::kBounds.size(); ++i) {
      below += waits.counts[i];
      out_.sample(fmt::format("{},le=\"{}\"", label("host", host), WaitHistogram::kBounds[i]),
                  below, "_bucket");
    }
    out_.sample(fmt::format("{},le=\"+Inf\"", label("host", host)), waits.total(), "_bucket");
    out_.sample(label("host", host), waits.sum_s, "_sum");
    out_.sample(label("host", host), waits.total(), "_count");
  }
}

std::string Metrics::text() {
  about_looking();
  if (in_.success) {
    about_hosts();
    about_gpus();
    about_users();
    about_queue();
  }
  about_the_past();
  return out_.take();
}

}  // namespace

// One value that is not UTF-8 would make Prometheus refuse all of them.
std::string label_value(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

std::string metrics_text(const MetricsInput& input) {
  return Metrics(input).text();
}

}  // namespace berth
