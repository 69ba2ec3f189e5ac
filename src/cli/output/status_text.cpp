// The table of `berth status`; see status_text.h.
#include "cli/output/status_text.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <vector>

#include "base/users.h"
#include "status/status_parts.h"

namespace berth {
namespace {

constexpr std::size_t kBarWidth = 10;
constexpr std::size_t kShortestName = 6;
constexpr std::size_t kIndent = 5;  // of what stands below a GPU
constexpr std::string_view kGap = "  ";
constexpr const char* kNobodyWaits = "Nobody waits.\n";
constexpr const char* kNoHosts =
    "No host has told of itself yet: run 'berth status' once on each that has GPUs.\n";

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
std::string process_line(const AttributedProcess& placed, const Terminal& terminal) {
  const GpuProcess& process = placed.process;
  const bool stranger = placed.stranger();
  const std::string pid = right(std::to_string(process.pid), 7);
  const std::string memory =
      right(process.memory ? format_size(*process.memory) : std::string(kAbsent), 8);
  const std::string note = !placed.lease.empty() ? placed.lease
                           : stranger            ? "no lease"
                           : placed.daemon       ? "driver"
                                                 : "display";
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
  const auto idle = idle_since(lease, now);
  const std::string text = fmt::format(
      "lease {}  {}  {}  for {}  {}pid {}  {}", lease.id, terminal.show(user_name(lease.uid)),
      lease.request.memory ? format_size(*lease.request.memory) : "exclusive",
      ago(lease.granted, now), idle ? fmt::format("idle for {}  ", ago(*idle, now)) : "", lease.pid,
      terminal.show(title_of(lease)));
  return terminal.paint(idle ? Style::warning : Style::notice, cut_to(text, kIndent, terminal)) +
         "\n";
}

// "1. k3f9a2mx  bob  2 GPUs  waits 10m  pid 4711  python train.py", and on the next line why.
std::string ticket_lines(const TicketStatus& ticket, const Status& status, const Terminal& terminal,
                         TimePoint now) {
  const Record& record = ticket.record;
  std::string out =
      cut_to(fmt::format("{}. {}  {}  {}  waits {}  pid {}  {}", ticket.position, record.id,
                         terminal.show(user_name(record.uid)),
                         terminal.show(asked_for(record.request, status)), ago(record.since, now),
                         record.pid, terminal.show(title_of(record))),
             2, terminal) +
      "\n";
  const std::string why = terminal.show(waits_because(ticket, now));
  return out + terminal.paint(Style::dim, wrapped(why, terminal.width, kIndent)) + "\n";
}

std::string summary(const Status& status, const Terminal& terminal) {
  const std::string told = told_text(status);
  return wrapped(fmt::format("{} - {} - {}{}{}", terminal.show(status.host),
                             terminal.show(driver_text(status)), gpu_counts(status),
                             told.empty() ? "" : " - ", told),
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
    for (const AttributedProcess& process : row.gpu->placed.processes) {
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
