// Facts, one below the other; see details.h.
#include "top/details.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "base/time_text.h"
#include "base/users.h"
#include "status/status_parts.h"
#include "top/pending_action.h"
#include "top/plots.h"

namespace berth::top {
namespace {

constexpr std::size_t kNameWidth = 15;
constexpr std::size_t kPlotHeight = 3;

// Names at the left, and what is to be said of them, wrapped, at the right.
class Facts {
 public:
  explicit Facts(const Drawing& with) : with_(with) {}

  // `text` as it came; nothing is left out.
  void add(const char* name, std::string_view text, Style style = Style::plain) {
    if (text.empty()) return;
    const std::size_t indent = 1 + kNameWidth;
    const std::size_t room = std::max<std::size_t>(with_.sheet.width, indent + 21) - indent - 1;
    std::string rest = with_.sheet.show(text);
    bool first = true;
    while (!rest.empty()) {
      const std::string line = take(rest, room);
      Line out = plain_line(Style::dim, fmt::format(" {}", left(first ? name : "", kNameWidth)));
      lines_.push_back(out.add(style, line));
      first = false;
    }
  }
  void time(const char* name, TimePoint time) {
    add(name, fmt::format("{} ({} ago)", local_time(time), ago(time, with_.now)));
  }
  void blank() { lines_.emplace_back(); }
  void add(Line line) { lines_.push_back(std::move(line)); }
  std::vector<Line> take() { return std::move(lines_); }

 private:
  // The first line of `rest`, broken at a blank if there is one: commands have words that are
  // longer than any line.
  static std::string take(std::string& rest, std::size_t room) {
    std::size_t bytes = 0;
    std::size_t blank = 0;
    std::size_t wide = 0;
    while (bytes < rest.size()) {
      const std::size_t length =
          std::max<std::size_t>(utf8_length(std::string_view(rest).substr(bytes)), 1);
      const std::size_t columns = display_width(std::string_view(rest).substr(bytes, length));
      if (wide + columns > room) break;
      wide += columns;
      bytes += length;
      if (rest[bytes - 1] == ' ') blank = bytes;
    }
    if (bytes < rest.size() && blank > 0) bytes = blank;
    std::string line = rest.substr(0, bytes);
    rest.erase(0, bytes);
    return line;
  }

  const Drawing& with_;
  std::vector<Line> lines_;
};

std::string user_and_pid(const Record& record) {
  return fmt::format("{}, pid {}", user_name(record.uid), record.pid);
}

// What lease and ticket have in common.
void add_record(Facts& facts, const Record& record, const Status& host) {
  facts.add("user", user_and_pid(record));
  facts.add("host", host.host);
  facts.add("command", record.command);
  facts.add("label", record.label);
  facts.add("job", record.job);
  facts.add("asked for", asked_for(record.request, host));
  facts.add("", record.profiles ? "is measured, for later runs of this job" : "");
}

std::string_view mode_text(ComputeMode mode) {
  switch (mode) {
    case ComputeMode::shared:
      return "default";
    case ComputeMode::exclusive_process:
      return "exclusive process";
    case ComputeMode::prohibited:
      return "prohibited";
  }
  return kAbsent;
}

std::string memory_text(const Row& row) {
  const Gpu& gpu = row.gpu->placed.gpu;
  const auto size = [](const std::optional<Bytes>& bytes) {
    return bytes ? format_size(*bytes) : std::string(kAbsent);
  };
  std::string text = fmt::format("{} used of {}", size(gpu.memory_used), size(gpu.memory_total));
  const Bytes reserved = reserved_unused(*row.host, *row.gpu);
  if (reserved.count > 0) text += fmt::format(", {} more reserved", format_size(reserved));
  return text;
}

std::string process_text(const AttributedProcess& placed) {
  const GpuProcess& process = placed.process;
  return fmt::format("{}{} (pid {}), {}, {}, {}", placed.stranger() ? "! " : "",
                     process.name.value_or(std::string(kAbsent)), process.pid,
                     process.uid ? user_name(*process.uid) : std::string("user unknown"),
                     process.memory ? format_size(*process.memory) : std::string("memory unknown"),
                     !placed.lease.empty() ? fmt::format("lease {}", placed.lease)
                                           : std::string(placed.stranger() ? "no lease"
                                                         : placed.daemon   ? "driver"
                                                                           : "display"));
}

void add_plot(Facts& facts, const char* title, const Series& series, const Drawing& with) {
  const std::size_t width = std::clamp<std::size_t>(with.sheet.width - kNameWidth - 3, 10, 120);
  const auto plot = tall_plot(series.columns(width), width, kPlotHeight, with.sheet.charset);
  facts.blank();
  for (std::size_t i = 0; i < plot.size(); ++i) {
    const std::string name = i == 0                 ? fmt::format("{} 100%", title)
                             : i + 1 == plot.size() ? "0%"
                                                    : "";
    Line line = plain_line(Style::dim, fmt::format(" {} ", right(name, kNameWidth - 1)));
    facts.add(line.add(Style::notice, plot[i]));
  }
}

std::vector<Line> gpu_details(const Row& row, const Drawing& with) {
  const GpuWithLeases& placed = row.gpu->placed;
  const Gpu& gpu = placed.gpu;
  Facts facts(with);
  const GpuState state = row.gpu->judgement.state;
  facts.add("state", berth::to_string(state), style_of(state));
  facts.add("", row.gpu->judgement.reason, style_of(state));
  facts.add("name", gpu.name.value_or(std::string(kAbsent)));
  facts.add("UUID", gpu.uuid.value_or(std::string(kAbsent)));
  facts.add("host", row.host->host);
  facts.add("driver", driver_text(*row.host));
  facts.add("memory", memory_text(row));
  facts.add("utilization", fmt::format("{}, of the memory {}", figure(gpu.utilization_pct, "%"),
                                       figure(gpu.memory_utilization_pct, "%")));
  facts.add("temperature",
            figure(gpu.temperature_c, with.sheet.charset == Charset::utf8 ? "°C" : "C"));
  facts.add("power", fmt::format("{}{}", figure(gpu.power_w, " W"),
                                 gpu.performance_state ? fmt::format(", performance state P{}",
                                                                     *gpu.performance_state)
                                                       : ""));
  if (gpu.compute_mode) facts.add("compute mode", mode_text(*gpu.compute_mode));
  if (gpu.display_active == true) facts.add("display", "drives one");
  if (placed.drain) facts.time("drained", placed.drain->since);
  for (const Record& lease : row.host->leases) {
    const auto& here = placed.leases;
    if (std::find(here.begin(), here.end(), lease.id) == here.end()) continue;
    facts.add("lease",
              fmt::format("{}, {}, {}, for {}: {}", lease.id, user_name(lease.uid),
                          lease.request.memory ? format_size(*lease.request.memory) : "exclusive",
                          ago(lease.granted, with.now), title_of(lease)));
  }
  for (const AttributedProcess& one : placed.processes) {
    facts.add("process", process_text(one), one.stranger() ? Style::bad : Style::plain);
  }
  if (const Track* track = with.history.of(*row.host, gpu)) {
    add_plot(facts, "memory", track->memory, with);
    add_plot(facts, "util", track->utilization, with);
    facts.add("", fmt::format("the last {}", format_duration(with.history.length())), Style::dim);
  }
  return facts.take();
}

std::vector<Line> lease_details(const Row& row, const Drawing& with) {
  const Record& lease = *row.lease;
  Facts facts(with);
  facts.add("GPU", gpus_of(lease, *row.host));
  facts.add("share", lease.request.memory
                         ? format_size(*lease.request.memory) + " on each GPU, shared with others"
                         : "exclusive");
  add_record(facts, lease, *row.host);
  facts.add("holder", lease.holder == HolderKind::shell
                          ? "a shell or script (berth acquire): r gives it back"
                          : "a job (berth run): the lease ends with it");
  facts.time("asked", lease.since);
  facts.time("granted", lease.granted);
  if (const auto ends = lease.ends()) {
    facts.add("ends", fmt::format("{}, as it said", local_time(*ends)));
  }
  if (const auto idle = idle_since(lease, with.now)) {
    facts.add("idle", fmt::format("nothing was computed for {}", ago(*idle, with.now)),
              Style::warning);
  }
  facts.add("within", lease.within);
  if (lease.epoch > 0) facts.add("epoch", std::to_string(lease.epoch));
  for (const GpuStatus& gpu : row.host->gpus) {
    for (const AttributedProcess& one : gpu.placed.processes) {
      if (one.lease != lease.id) continue;
      facts.add("process", fmt::format("GPU {}: {}", berth::to_string(gpu.placed.gpu.index),
                                       process_text(one)));
    }
  }
  return facts.take();
}

std::vector<Line> ticket_details(const Row& row, const Drawing& with) {
  const TicketStatus& ticket = *row.ticket;
  Facts facts(with);
  facts.add("position", fmt::format("{} of {}", ticket.position, row.host->queue.size()));
  facts.add("waits for", ticket.reason);
  facts.add("expected", ticket.starts && *ticket.starts > with.now
                            ? fmt::format("{}, in about {}", local_time(*ticket.starts),
                                          ago(with.now, *ticket.starts))
                            : "nobody can say");
  add_record(facts, ticket.record, *row.host);
  facts.time("waits since", ticket.record.since);
  return facts.take();
}

}  // namespace

std::string details_title(const Row& row, const Sheet& sheet) {
  if (row.ticket != nullptr) return fmt::format("Ticket {}", sheet.show(row.ticket->record.id));
  if (row.lease != nullptr) return fmt::format("Lease {}", sheet.show(row.lease->id));
  return fmt::format("GPU {} on {}", berth::to_string(row.gpu->placed.gpu.index),
                     sheet.show(row.host->host));
}

std::vector<Line> details_lines(const Row& row, const Drawing& with) {
  if (row.ticket != nullptr) return ticket_details(row, with);
  if (row.lease != nullptr) return lease_details(row, with);
  return gpu_details(row, with);
}

std::vector<Line> help_lines(Charset charset) {
  struct Help {
    const char* keys;
    const char* does;
  };
  static constexpr std::array keys{
      Help{"arrows, j k", "select a GPU, a lease or a ticket; PgUp PgDn Home End, too"},
      Help{"Tab", "from the GPUs to the queue, and back"},
      Help{"Enter", "all that is known of it; Esc or Enter leads back"},
      Help{"s", "sort GPUs: by index, user, memory, utilization"},
      Help{"f or /", "show only what is of users like the text you type; Esc ends it"},
      Help{"c", "cancel the selected ticket, if it is yours: asks first"},
      Help{"r", "give the selected lease back, if it is your shell's: asks first"},
      Help{"p", "pause: the picture stays as it is; p goes on"},
      Help{"h or ?", "this help"},
      Help{"q", "quit"},
  };
  std::vector<Line> lines;
  for (const Help& key : keys) {
    Line line = plain_line(Style::bold, fmt::format(" {}", left(key.keys, kNameWidth)));
    lines.push_back(line.add(Style::plain, key.does));
  }
  lines.emplace_back();
  const auto say = [&](Style style, const char* name, const char* text) {
    Line line = plain_line(style, fmt::format(" {}", left(name, kNameWidth)));
    lines.push_back(line.add(Style::plain, text));
  };
  say(style_of(GpuState::free), "free", "can be had: berth run -- python train.py");
  say(style_of(GpuState::leased), "leased, shared", "somebody's, by berth: whole, or in part");
  say(style_of(GpuState::stranger), "stranger", "used by a process without a lease");
  say(style_of(GpuState::drained), "drained", "out of service");
  say(style_of(GpuState::lost), "lost", "the driver cannot reach it");
  say(style_of(GpuState::unknown), "unknown", "the driver does not say whether it is in use");
  lines.emplace_back();
  const bool utf8 = charset == Charset::utf8;
  lines.push_back(plain_line(
      Style::plain, fmt::format(" memory: {} used  {} reserved  {} free", utf8 ? "██" : "##",
                                utf8 ? "░░" : "==", utf8 ? "··" : "..")));
  return lines;
}

}  // namespace berth::top
