// Writes the metrics, family by family; see metrics.h.
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

namespace berth::serve {
namespace {

constexpr std::array kStates{GpuState::free,     GpuState::leased,  GpuState::shared,
                             GpuState::stranger, GpuState::drained, GpuState::lost,
                             GpuState::unknown};
constexpr std::array kEndings{Ending::exited, Ending::killed, Ending::released, Ending::lost};

double to_seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(std::chrono::duration_cast<std::chrono::milliseconds>(time))
      .count();
}

// Writes metric families in the order of begin_family(); a family without samples is left out.
class ExpositionWriter {
 public:
  void begin_family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    head_ = fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
  }
  // `labels` is the text between the braces.
  template <class Value>
  void add_sample(std::string_view labels, Value value, std::string_view suffix = "") {
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
  std::string release_text() { return std::move(text_); }

 private:
  std::string name_;
  std::string head_;
  std::string text_;
};

std::string format_label(std::string_view name, std::string_view value) {
  return fmt::format("{}=\"{}\"", name, escape_label_value(value));
}

// A host, GPU or user and the text of its labels, which begins the text between the braces.
struct LabelledHost {
  const Status& status;
  std::string labels;
};

struct LabelledGpu {
  const GpuStatus& status;
  const Status& host;
  std::string labels;
};

struct UserTotals {
  std::size_t leases = 0;
  std::set<std::string> gpus;
  std::size_t tickets = 0;
  std::size_t idle = 0;
};

// The leases that occupy GPUs: without subleases, whose parent lease is also in the list.
std::vector<const Record*> outer_leases(const Status& host) {
  std::set<std::string_view> active_ids;
  for (const Record& lease : host.leases) active_ids.insert(lease.id);
  std::vector<const Record*> outer;
  for (const Record& lease : host.leases) {
    if (!active_ids.contains(lease.parent_lease)) outer.push_back(&lease);
  }
  return outer;
}

// The key is the user's name.
std::map<std::string, UserTotals> totals_by_user(const Status& host, TimePoint now) {
  std::map<std::string, UserTotals> users;
  for (const Record* lease : outer_leases(host)) {
    UserTotals& user = users[user_name(lease->uid)];
    ++user.leases;
    user.gpus.insert(lease->uuids.begin(), lease->uuids.end());
    if (idle_since(*lease, now)) ++user.idle;
  }
  for (const TicketStatus& ticket : host.queue) ++users[user_name(ticket.record.uid)].tickets;
  return users;
}

// An exclusive lease reserves the whole memory of the GPU.
std::optional<std::uint64_t> reserved_memory(const LabelledGpu& gpu) {
  const GpuWithLeases& view = gpu.status.view;
  if (!view.leases.empty() && !view.shared) {
    if (!view.gpu.memory_total) return std::nullopt;
    return view.gpu.memory_total->count;
  }
  std::uint64_t sum = 0;
  for (const Record& lease : gpu.host.leases) {
    if (!view.has_lease(lease.id)) continue;
    sum = saturating_add(sum, lease.request.memory.value_or(Bytes{}).count);
  }
  return sum;
}

std::optional<std::size_t> count_processes(const LabelledGpu& gpu) {
  if (gpu.status.view.gpu.health != Health::ok) return std::nullopt;
  return gpu.status.view.processes.size();
}

// Memory that belongs to no visible process counts as one stranger.
std::optional<std::size_t> count_strangers(const GpuWithLeases& view) {
  if (view.gpu.health != Health::ok) return std::nullopt;
  const auto count = std::count_if(view.processes.begin(), view.processes.end(),
                                   [](const AttributedProcess& one) { return one.is_stranger(); });
  const bool hidden = count == 0 && view.leases.empty() && view.unexplained;
  return static_cast<std::size_t>(count) + (hidden ? 1 : 0);
}

std::optional<double> to_ratio(const std::optional<unsigned>& percent) {
  return percent ? std::optional(*percent / 100.0) : std::nullopt;
}

std::optional<std::uint64_t> to_byte_count(const std::optional<Bytes>& size) {
  return size ? std::optional(size->count) : std::nullopt;
}

class MetricsWriter {
 public:
  explicit MetricsWriter(const MetricsInput& input);
  std::string text();

 private:
  void write_server_metrics();
  void write_host_metrics();
  void write_gpu_metrics();
  void write_user_metrics();
  void write_queue_metrics();
  void write_counter_metrics();

  // Writes a sample for each host, GPU or user for which `get` returns a value.
  template <class Labelled, class Get>
  void write_gauge(const std::vector<Labelled>& all, std::string_view name, std::string_view help,
                   const Get& get) {
    output_.begin_family(name, "gauge", help);
    for (const Labelled& one : all) {
      if (const auto value = get(one)) output_.add_sample(one.labels, *value);
    }
  }

  const MetricsInput& input_;
  ExpositionWriter output_;
  std::vector<LabelledHost> hosts_;
  std::vector<LabelledGpu> gpus_;
};

MetricsWriter::MetricsWriter(const MetricsInput& input) : input_(input) {
  if (!input.poll_succeeded) return;
  for (const Status& host : input.hosts) {
    hosts_.push_back({host, format_label("host", host.host)});
    for (const GpuStatus& gpu : host.gpus) {
      const Gpu& one = gpu.view.gpu;
      gpus_.push_back({gpu, host,
                       fmt::format("{},{},{},{}", hosts_.back().labels,
                                   format_label("gpu", to_string(one.index)),
                                   format_label("uuid", one.uuid.value_or("")),
                                   format_label("name", one.name.value_or("")))});
    }
  }
}

void MetricsWriter::write_server_metrics() {
  output_.begin_family("berth_build_info", "gauge",
                       "Version of berth that runs this server; always 1.");
  output_.add_sample(format_label("version", input_.version), 1);
  output_.begin_family("berth_start_time_seconds", "gauge",
                       "Start time of this server's counters, in seconds since 1970.");
  output_.add_sample("", to_seconds(input_.counters.start_time().time_since_epoch()));
  output_.begin_family("berth_look_success", "gauge",
                       "Whether the last poll of driver and harbour succeeded (1) or failed (0).");
  output_.add_sample("", input_.poll_succeeded ? 1 : 0);
  output_.begin_family("berth_look_timestamp_seconds", "gauge",
                       "Time of the last successful poll, in seconds since 1970.");
  if (input_.last_success)
    output_.add_sample("", to_seconds(input_.last_success->time_since_epoch()));
}

void MetricsWriter::write_host_metrics() {
  write_gauge(hosts_, "berth_host_up", "Whether the GPUs of the host are known (1) or not (0).",
              [](const auto& host) { return std::optional(host.status.problem.empty() ? 1 : 0); });
  write_gauge(hosts_, "berth_host_age_seconds",
              "Age of the host's GPU data, in seconds; 0 on the host of this server.",
              [](const auto& host) {
                if (!host.status.is_remote) return std::optional(std::chrono::seconds::rep{0});
                return host.status.age ? std::optional(host.status.age->count()) : std::nullopt;
              });
  output_.begin_family("berth_host_info", "gauge", "Driver version of the host; always 1.");
  for (const auto& [host, labels] : hosts_) {
    if (!host.driver) continue;
    output_.add_sample(fmt::format("{},{},simulated=\"{}\"", labels,
                                   format_label("driver", *host.driver), host.simulated),
                       1);
  }
}

void MetricsWriter::write_gpu_metrics() {
  output_.begin_family("berth_gpu_state", "gauge",
                       "State of the GPU: 1 for the current state, 0 for the others.");
  for (const LabelledGpu& gpu : gpus_) {
    for (const GpuState state : kStates) {
      output_.add_sample(fmt::format("{},state=\"{}\"", gpu.labels, to_string(state)),
                         gpu.status.state_reason.state == state ? 1 : 0);
    }
  }
  const auto driver = [](const LabelledGpu& gpu) -> const Gpu& { return gpu.status.view.gpu; };
  write_gauge(gpus_, "berth_gpu_memory_bytes", "GPU memory, in bytes.",
              [&](const auto& gpu) { return to_byte_count(driver(gpu).memory_total); });
  write_gauge(gpus_, "berth_gpu_memory_used_bytes", "GPU memory in use, in bytes.",
              [&](const auto& gpu) { return to_byte_count(driver(gpu).memory_used); });
  write_gauge(gpus_, "berth_gpu_memory_reserved_bytes",
              "GPU memory reserved by leases, in bytes; all of it for an exclusive lease.",
              reserved_memory);
  write_gauge(gpus_, "berth_gpu_utilization_ratio", "GPU utilization, from 0 to 1.",
              [&](const auto& gpu) { return to_ratio(driver(gpu).utilization_pct); });
  write_gauge(gpus_, "berth_gpu_memory_utilization_ratio",
              "Utilization of the GPU memory interface, from 0 to 1.",
              [&](const auto& gpu) { return to_ratio(driver(gpu).memory_utilization_pct); });
  write_gauge(gpus_, "berth_gpu_temperature_celsius", "GPU temperature, in degrees Celsius.",
              [&](const auto& gpu) { return driver(gpu).temperature_c; });
  write_gauge(gpus_, "berth_gpu_power_watts", "GPU power draw, in watts.",
              [&](const auto& gpu) { return driver(gpu).power_w; });
  write_gauge(gpus_, "berth_gpu_processes", "Processes on the GPU, including displays.",
              count_processes);
  write_gauge(gpus_, "berth_gpu_strangers",
              "Processes on the GPU without a lease; memory of no visible process counts as one.",
              [](const auto& gpu) { return count_strangers(gpu.status.view); });
  write_gauge(gpus_, "berth_gpu_leases", "Leases on the GPU, exclusive or shared.",
              [](const auto& gpu) { return std::optional(gpu.status.view.leases.size()); });
}

void MetricsWriter::write_user_metrics() {
  struct UserRow {
    std::string labels;
    UserTotals totals;
    bool is_remote = false;
  };
  std::vector<UserRow> all;
  for (const auto& [host, labels] : hosts_) {
    for (auto& [name, totals] : totals_by_user(host, input_.now)) {
      all.push_back({fmt::format("{},{}", labels, format_label("user", name)), std::move(totals),
                     host.is_remote});
    }
  }
  write_gauge(all, "berth_user_leases", "Current leases of the user.",
              [](const UserRow& user) { return std::optional(user.totals.leases); });
  write_gauge(all, "berth_user_gpus", "GPUs that the user has leased, whole or shared.",
              [](const UserRow& user) { return std::optional(user.totals.gpus.size()); });
  write_gauge(all, "berth_user_tickets", "Tickets of the user in the queue.",
              [](const UserRow& user) { return std::optional(user.totals.tickets); });
  // Only the host of a lease knows whether its GPUs are used.
  write_gauge(all, "berth_user_idle_leases",
              "Leases of the user whose GPUs have been idle for 10 minutes or more.",
              [](const UserRow& user) {
                return user.is_remote ? std::nullopt : std::optional(user.totals.idle);
              });
}

void MetricsWriter::write_queue_metrics() {
  write_gauge(hosts_, "berth_queue_length", "Tickets in the queue.",
              [](const auto& host) { return std::optional(host.status.queue.size()); });
  write_gauge(hosts_, "berth_queue_oldest_seconds",
              "Waiting time of the oldest ticket, in seconds.",
              [&](const auto& host) -> std::optional<double> {
                const auto& queue = host.status.queue;
                const auto first = std::min_element(
                    queue.begin(), queue.end(),
                    [](const auto& a, const auto& b) { return a.record.since < b.record.since; });
                if (first == queue.end()) return std::nullopt;
                return std::max(0.0, to_seconds(input_.now - first->record.since));
              });
  write_gauge(hosts_, "berth_idle_leases",
              "Leases whose GPUs have been idle for 10 minutes or more.",
              [&](const auto& host) -> std::optional<std::ptrdiff_t> {
                if (host.status.is_remote) return std::nullopt;
                const auto outer = outer_leases(host.status);
                return std::count_if(outer.begin(), outer.end(), [&](const Record* lease) {
                  return idle_since(*lease, input_.now).has_value();
                });
              });
  write_gauge(hosts_, "berth_strangers", "Processes without a lease on the GPUs that can be read.",
              [](const auto& host) -> std::optional<std::size_t> {
                if (!host.status.problem.empty()) return std::nullopt;
                std::size_t sum = 0;
                for (const GpuStatus& gpu : host.status.gpus) {
                  sum += count_strangers(gpu.view).value_or(0);
                }
                return sum;
              });
}

void MetricsWriter::write_counter_metrics() {
  const auto& hosts = input_.counters.hosts();
  output_.begin_family("berth_grants_total", "counter", "Leases granted.");
  for (const auto& [host, counters] : hosts)
    output_.add_sample(format_label("host", host), counters.grants);
  output_.begin_family("berth_lease_endings_total", "counter", "Leases ended, by kind of ending.");
  for (const auto& [host, counters] : hosts) {
    for (const Ending ending : kEndings) {
      const auto count = counters.endings.find(ending);
      output_.add_sample(
          fmt::format("{},ending=\"{}\"", format_label("host", host), ending_name(ending)),
          count == counters.endings.end() ? 0 : count->second);
    }
  }
  output_.begin_family("berth_wait_seconds", "histogram",
                       "Waiting time of granted leases, in seconds.");
  for (const auto& [host, counters] : hosts) {
    std::uint64_t cumulative = 0;
    const WaitHistogram& waits = counters.waits;
    for (std::size_t i = 0; i < WaitHistogram::kBounds.size(); ++i) {
      cumulative += waits.counts[i];
      output_.add_sample(
          fmt::format("{},le=\"{}\"", format_label("host", host), WaitHistogram::kBounds[i]),
          cumulative, "_bucket");
    }
    output_.add_sample(fmt::format("{},le=\"+Inf\"", format_label("host", host)), waits.total(),
                       "_bucket");
    output_.add_sample(format_label("host", host), waits.sum_s, "_sum");
    output_.add_sample(format_label("host", host), waits.total(), "_count");
  }
}

std::string MetricsWriter::text() {
  write_server_metrics();
  if (input_.poll_succeeded) {
    write_host_metrics();
    write_gpu_metrics();
    write_user_metrics();
    write_queue_metrics();
  }
  write_counter_metrics();
  return output_.release_text();
}

}  // namespace

// Prometheus rejects the whole page if one value is not valid UTF-8.
std::string escape_label_value(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

std::string format_metrics(const MetricsInput& input) {
  return MetricsWriter(input).text();
}

}  // namespace berth::serve
