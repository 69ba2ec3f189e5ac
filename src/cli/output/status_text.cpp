// The table of `berth status`; see status_text.h.
#include "cli/output/status_text.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <vector>

#include "base/users.h"

namespace berth {
namespace {

constexpr std::size_t kBarWidth = 10;
constexpr std::size_t kShortestName = 6;
constexpr std::size_t kIndent = 5;  // of what stands below a GPU
constexpr std::string_view kGap = "  ";
constexpr std::string_view kAbsent = "-";
constexpr const char* kNobodyWaits = "Nobody waits.\n";
constexpr const char* kNoHosts =
    "No host has told of itself yet: run 'berth status' once on each that has GPUs.\n";

Style style_of(GpuState state) {
  switch (state) {
    case GpuState::free:
      return Style::good;
    case GpuState::leased:
    case GpuState::shared:
      return Style::notice;
    case GpuState::stranger:
    case GpuState::lost:
      return Style::bad;
    case GpuState::drained:
    case GpuState::unknown:
      return Style::warning;
  }
  return Style::plain;
}

// A bar of `width` columns, in eighths of a column where the character set has them.
std::string bar(double share, std::size_t width, Charset charset) {
  share = std::clamp(share, 0.0, 1.0);
  std::string out;
  if (charset == Charset::ascii) {
    const auto filled = rounded(share * static_cast<double>(width));
    return std::string(filled, '#') + std::string(width - filled, '.');
  }
  constexpr std::array<std::string_view, 9> eighths{"·", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
  auto left_over = rounded(share * static_cast<double>(width) * 8);
  for (std::size_t i = 0; i < width; ++i) {
    const std::size_t here = std::min<std::size_t>(left_over, 8);
    out += eighths[here];
    left_over -= here;
  }
  return out;
}

std::string memory_figures(const Gpu& gpu) {
  if (!gpu.memory_total) return std::string(kAbsent);
  const bool small = *gpu.memory_total < gib(1);
  const double unit = static_cast<double>(small ? mib(1).count : gib(1).count);
  const auto amount = [&](Bytes size) { return static_cast<double>(size.count) / unit; };
  const std::string used = gpu.memory_used
                               ? fmt::format("{:.{}f}", amount(*gpu.memory_used), small ? 0 : 1)
                               : std::string(kAbsent);
  return fmt::format("{}/{:.0f} {}", used, amount(*gpu.memory_total), small ? "MiB" : "GiB");
}

template <class T>
std::string figure(const std::optional<T>& value, std::string_view unit) {
  if (!value) return std::string(kAbsent);
  return fmt::format("{:.0f}{}", static_cast<double>(*value), unit);
}

enum class Align { left, right };

struct Column {
  std::string_view title;
  Align align;
  std::size_t width = 0;
};

struct Row {
  std::vector<std::string> cells;  // fit for the terminal, without styles
  const GpuStatus* gpu = nullptr;
};

// The columns of the table; `name` is the one that gives way, the last ones go when nothing else
// helps.
enum ColumnIndex : std::size_t {
  c_index,
  c_name,
  c_state,
  c_bar,
  c_memory,
  c_util,
  c_temp,
  c_power
};

class GpuTable {
 public:
  GpuTable(const Status& status, const Terminal& terminal) : terminal_(terminal) {
    for (const GpuStatus& gpu : status.gpus) rows_.push_back({cells_of(gpu), &gpu});
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      columns_[c].width = display_width(columns_[c].title);
      for (const Row& row : rows_) {
        columns_[c].width = std::max(columns_[c].width, display_width(row.cells[c]));
      }
    }
    fit();
  }

  std::string header() const {
    std::vector<std::string> titles;
    for (const Column& column : columns_) titles.emplace_back(column.title);
    return terminal_.paint(Style::dim, line(titles, std::nullopt));
  }

  const std::vector<Row>& rows() const { return rows_; }

  std::string line(const Row& row) const {
    return line(row.cells, style_of(row.gpu->judgement.state));
  }

 private:
  std::vector<std::string> cells_of(const GpuStatus& status) const {
    const Gpu& gpu = status.placed.gpu;
    std::string memory_bar;
    if (gpu.memory_total && gpu.memory_used && gpu.memory_total->count > 0) {
      memory_bar = bar(static_cast<double>(gpu.memory_used->count) /
                           static_cast<double>(gpu.memory_total->count),
                       kBarWidth, terminal_.charset);
    }
    return {to_string(gpu.index),
            terminal_.show(gpu.name.value_or(std::string(kAbsent))),
            std::string(to_string(status.judgement.state)),
            memory_bar,
            memory_figures(gpu),
            figure(gpu.utilization_pct, "%"),
            figure(gpu.temperature_c, terminal_.charset == Charset::utf8 ? "°C" : "C"),
            figure(gpu.power_w, "W")};
  }

  std::size_t total() const {
    std::size_t sum = 0;
    for (const Column& column : columns_) {
      if (column.width > 0) sum += column.width + (sum > 0 ? kGap.size() : 0);
    }
    return sum;
  }

  // The maker's name says little and the end often much ("MIG 3g.40gb"): the first goes, the middle
  // is cut.
  std::string shortened_name(std::string_view name) const {
    constexpr std::string_view maker = "NVIDIA ";
    const std::size_t room = columns_[c_name].width;
    if (display_width(name) > room && name.starts_with(maker)) name.remove_prefix(maker.size());
    return fitted_middle(name, room, terminal_.charset);
  }

  void fit() {
    if (!terminal_.width) return;
    const auto narrow = [&](std::size_t c, std::size_t least) {
      const std::size_t over = total() > *terminal_.width ? total() - *terminal_.width : 0;
      Column& column = columns_[c];
      column.width =
          column.width > over + least ? column.width - over : std::min(column.width, least);
    };
    narrow(c_name, 2 * kShortestName);
    for (const std::size_t c : {c_power, c_temp, c_bar, c_util}) {
      if (total() > *terminal_.width) columns_[c].width = 0;
    }
    narrow(c_name, kShortestName);
  }

  std::string line(const std::vector<std::string>& cells, std::optional<Style> state_style) const {
    std::string out;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const Column& column = columns_[c];
      if (column.width == 0) continue;
      if (!out.empty()) out += kGap;
      const std::string cell = c == c_name ? shortened_name(cells[c])
                                           : fitted(cells[c], column.width, terminal_.charset);
      const std::string padded =
          column.align == Align::left ? left(cell, column.width) : right(cell, column.width);
      const bool styled = state_style && (c == c_state || c == c_bar);
      out += styled ? terminal_.paint(*state_style, padded) : padded;
    }
    while (out.ends_with(' ')) out.pop_back();
    return out + "\n";
  }

  const Terminal& terminal_;
  std::array<Column, 8> columns_{{{"GPU", Align::right},
                                  {"NAME", Align::left},
                                  {"STATE", Align::left},
                                  {"", Align::left},
                                  {"MEMORY", Align::right},
                                  {"UTIL", Align::right},
                                  {"TEMP", Align::right},
                                  {"POWER", Align::right}}};
  std::vector<Row> rows_;
};

// "! 4711  bob  python  9.1 GiB  no lease". On a narrow terminal the name gives way, then the user.
std::string process_line(const PlacedProcess& placed, const Terminal& terminal) {
  const GpuProcess& process = placed.process;
  const bool stranger = placed.stranger();
  const std::string pid = right(std::to_string(process.pid), 7);
  const std::string memory =
      right(process.memory ? format_size(*process.memory) : std::string(kAbsent), 8);
  const std::string note = !placed.lease.empty() ? placed.lease : stranger ? "no lease" : "display";
  const std::string user =
      terminal.show(process.uid ? user_name(*process.uid) : std::string(kAbsent));
  const std::string name = terminal.show(process.name.value_or(std::string(kAbsent)));
  std::size_t user_room = ~0UL;
  std::size_t name_room = ~0UL;
  if (terminal.width) {
    const std::size_t fixed = kIndent + 2 + pid.size() + memory.size() + note.size() + 8;
    const std::size_t room = *terminal.width > fixed ? *terminal.width - fixed : 0;
    user_room = std::min<std::size_t>(10, room / 2);
    name_room = room - user_room;
  }
  const auto cell = [&](const std::string& content, std::size_t usual, std::size_t room) {
    return left(fitted(content, room, terminal.charset), std::min(usual, room));
  };
  const std::string text =
      fmt::format("{} {}  {}  {}  {}  {}", stranger ? "!" : " ", pid, cell(user, 10, user_room),
                  cell(name, 15, name_room), memory, note);
  const std::size_t room = terminal.width ? std::max(*terminal.width, kIndent) - kIndent : ~0UL;
  return std::string(kIndent, ' ') +
         terminal.paint(stranger ? Style::bad : Style::dim, fitted(text, room, terminal.charset)) +
         "\n";
}

std::string ago(TimePoint since, TimePoint now) {
  const auto past = std::chrono::floor<std::chrono::seconds>(now - since);
  return format_duration(std::max(past, std::chrono::seconds(0)));
}

// "GPU 0", "GPU 0,2", "2 GPUs of 0,1,3".
std::string wanted_gpus(const Request& request, const Status& status) {
  std::string text = fmt::format("{} {}", request.count, request.count == 1 ? "GPU" : "GPUs");
  if (!request.uuids) return text;
  std::string indices;
  for (const GpuStatus& one : status.gpus) {
    const auto& uuids = *request.uuids;
    if (std::find(uuids.begin(), uuids.end(), one.placed.gpu.uuid) == uuids.end()) continue;
    indices += fmt::format("{}{}", indices.empty() ? "" : ",", to_string(one.placed.gpu.index));
  }
  if (indices.empty()) return text;
  return request.uuids->size() == request.count ? fmt::format("GPU {}", indices)
                                                : fmt::format("{} of {}", text, indices);
}

// What it asked for: "2 GPUs, 8 GiB each, for 4h".
std::string asked_for(const Request& request, const Status& status) {
  std::string text = wanted_gpus(request, status);
  if (request.name) text += fmt::format(" {}", in_quotes(*request.name));
  if (request.min_memory) text += fmt::format(" from {}", format_size(*request.min_memory));
  if (request.memory) text += fmt::format(", {} each", format_size(*request.memory));
  if (request.time) text += fmt::format(", for {}", format_duration(*request.time));
  return text;
}

std::string cut_to(const std::string& text, std::size_t indent, const Terminal& terminal) {
  const std::size_t room = terminal.width ? std::max(*terminal.width, indent) - indent : ~0UL;
  return std::string(indent, ' ') + fitted(text, room, terminal.charset);
}

// "lease k3f9a2mx  bob  exclusive  for 10m  pid 4711  python train.py"; where an earlier GPU has
// said so, "lease k3f9a2mx  as on GPU 0".
std::string lease_line(const Record& lease, const std::string& said_at, const Terminal& terminal,
                       TimePoint now) {
  if (!said_at.empty()) {
    const std::string text = fmt::format("lease {}  as on GPU {}", lease.id, said_at);
    return terminal.paint(Style::notice, cut_to(text, kIndent, terminal)) + "\n";
  }
  const std::string what = lease.label.empty() ? lease.command : lease.label;
  const auto idle = idle_since(lease, now);
  const std::string text = fmt::format(
      "lease {}  {}  {}  for {}  {}pid {}  {}", lease.id, terminal.show(user_name(lease.uid)),
      lease.request.memory ? format_size(*lease.request.memory) : "exclusive",
      ago(lease.granted, now), idle ? fmt::format("idle for {}  ", ago(*idle, now)) : "", lease.pid,
      terminal.show(what));
  return terminal.paint(idle ? Style::warning : Style::notice, cut_to(text, kIndent, terminal)) +
         "\n";
}

// "1. k3f9a2mx  bob  2 GPUs  waits 10m  pid 4711  python train.py", and on the next line why.
std::string ticket_lines(const TicketStatus& ticket, const Status& status, const Terminal& terminal,
                         TimePoint now) {
  const Record& record = ticket.record;
  const std::string what = record.label.empty() ? record.command : record.label;
  std::string out = cut_to(fmt::format("{}. {}  {}  {}  waits {}  pid {}  {}", ticket.position,
                                       record.id, terminal.show(user_name(record.uid)),
                                       terminal.show(asked_for(record.request, status)),
                                       ago(record.since, now), record.pid, terminal.show(what)),
                           2, terminal) +
                    "\n";
  std::string why = terminal.show(ticket.reason);
  if (ticket.starts && *ticket.starts > now) {
    why += fmt::format("; expected in about {}", ago(now, *ticket.starts));
  }
  return out + terminal.paint(Style::dim, wrapped(why, terminal.width, kIndent)) + "\n";
}

// A stranger that the process list shows needs no second line in words.
bool reason_is_news(const GpuStatus& status) {
  if (status.judgement.reason.empty()) return false;
  const auto& processes = status.placed.processes;
  const bool shown = std::any_of(processes.begin(), processes.end(),
                                 [](const PlacedProcess& one) { return one.stranger(); });
  const GpuState state = status.judgement.state;
  return !shown || state == GpuState::drained || state == GpuState::lost ||
         state == GpuState::unknown;
}

std::string summary(const Status& status, const Terminal& terminal) {
  std::map<GpuState, std::size_t> counts;
  for (const GpuStatus& gpu : status.gpus) ++counts[gpu.judgement.state];
  std::string states;
  for (const auto& [state, count] : counts) {
    states += fmt::format("{}{} {}", states.empty() ? ": " : ", ", count, to_string(state));
  }
  const std::size_t count = status.gpus.size();
  const std::string gpus = fmt::format("{} {}{}", count, count == 1 ? "GPU" : "GPUs", states);
  const std::string driver =
      fmt::format("{}driver {}", status.simulated ? "simulated " : "",
                  terminal.show(status.driver.value_or(std::string(kAbsent))));
  std::string told;
  if (status.elsewhere) {
    told = status.age ? fmt::format(" - told {} ago", format_duration(*status.age))
                      : " - told some time ago";
  }
  return wrapped(fmt::format("{} - {} - {}{}", terminal.show(status.host), driver, gpus, told),
                 terminal.width, 0) +
         "\n";
}

}  // namespace

std::string queue_text(const Status& status, const Terminal& terminal) {
  const TimePoint now = std::chrono::system_clock::now();
  std::string out;
  for (const TicketStatus& ticket : status.queue) {
    out += ticket_lines(ticket, status, terminal, now);
  }
  return out.empty() ? kNobodyWaits : out;
}

std::string hosts_text(const std::vector<Status>& hosts, const Terminal& terminal) {
  if (hosts.empty()) return kNoHosts;
  std::string out;
  for (const Status& host : hosts) {
    out += fmt::format("{}{}", out.empty() ? "" : "\n", status_text(host, terminal));
  }
  return out;
}

std::string hosts_queue_text(const std::vector<Status>& hosts, const Terminal& terminal) {
  if (hosts.empty()) return kNoHosts;
  std::string out;
  for (const Status& host : hosts) {
    if (host.queue.empty()) continue;
    out += fmt::format("{}:\n{}", terminal.show(host.host), queue_text(host, terminal));
  }
  return out.empty() ? kNobodyWaits : out;
}

std::string status_text(const Status& status, const Terminal& terminal) {
  const TimePoint now = std::chrono::system_clock::now();
  if (!status.problem.empty()) {
    return wrapped(fmt::format("{} - nothing is known of its GPUs: {}", terminal.show(status.host),
                               terminal.show(status.problem)),
                   terminal.width, 0) +
           "\n";
  }
  std::string out = summary(status, terminal);
  if (status.gpus.empty()) return out + "The driver works, and it has no GPU.\n";
  const GpuTable table(status, terminal);
  out += '\n';
  out += table.header();
  std::map<std::string, std::string> said;  // of each lease, at which GPU
  for (const Row& row : table.rows()) {
    out += table.line(row);
    for (const Record& lease : status.leases) {
      const auto& here = row.gpu->placed.leases;
      if (std::find(here.begin(), here.end(), lease.id) == here.end()) continue;
      out += lease_line(lease, said[lease.id], terminal, now);
      if (said[lease.id].empty()) said[lease.id] = to_string(row.gpu->placed.gpu.index);
    }
    for (const PlacedProcess& process : row.gpu->placed.processes) {
      out += process_line(process, terminal);
    }
    if (!reason_is_news(*row.gpu)) continue;
    const std::string reason = terminal.show(row.gpu->judgement.reason);
    out += terminal.paint(style_of(row.gpu->judgement.state),
                          wrapped(fmt::format("! {}", reason), terminal.width, kIndent)) +
           "\n";
  }
  if (!status.queue.empty()) {
    out +=
        fmt::format("\nQueue: {} waiting\n{}", status.queue.size(), queue_text(status, terminal));
  }
  return out;
}

}  // namespace berth
