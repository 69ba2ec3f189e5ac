// The table of GPUs and the list of tickets; see status_text.h.
#include "cli/output/status_text.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <vector>

#include "base/users.h"
#include "status/status_format.h"

namespace berth {
namespace {

constexpr std::size_t kBarWidth = 10;
constexpr std::size_t kMinNameWidth = 6;
constexpr std::size_t kIndent = 5;  // of the lines below a GPU
constexpr std::string_view kGap = "  ";
constexpr const char* kEmptyQueueText = "The queue is empty.\n";
constexpr const char* kNoHostsText =
    "No host has registered yet: run 'berth status' once on each host with GPUs.\n";

enum class Align { left, right };

struct GpuColumn {
  std::string_view title;
  Align align;
  std::size_t width = 0;
};

struct GpuRow {
  std::vector<std::string> cells;  // escaped for the terminal, without styles
  const GpuStatus* gpu = nullptr;
};

// The columns of the table. On a narrow terminal the name is shortened first; then the last columns
// are left out.
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
    for (const GpuStatus& gpu : status.gpus) rows_.push_back({gpu_cells(gpu), &gpu});
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      columns_[c].width = display_width(columns_[c].title);
      for (const GpuRow& row : rows_) {
        columns_[c].width = std::max(columns_[c].width, display_width(row.cells[c]));
      }
    }
    shrink_columns();
  }

  std::string header() const {
    std::vector<std::string> titles;
    for (const GpuColumn& column : columns_) titles.emplace_back(column.title);
    return terminal_.paint(Style::dim, line(titles, std::nullopt));
  }

  const std::vector<GpuRow>& rows() const { return rows_; }

  std::string line(const GpuRow& row) const {
    return line(row.cells, style_of(row.gpu->state_reason.state));
  }

 private:
  std::vector<std::string> gpu_cells(const GpuStatus& status) const {
    const Gpu& gpu = status.view.gpu;
    std::string memory_bar;
    if (gpu.memory_total && gpu.memory_used && gpu.memory_total->count > 0) {
      memory_bar = format_bar(static_cast<double>(gpu.memory_used->count) /
                                  static_cast<double>(gpu.memory_total->count),
                              kBarWidth, terminal_.charset);
    }
    return {to_string(gpu.index),
            terminal_.escape(gpu.name.value_or(std::string(kAbsent))),
            std::string(to_string(status.state_reason.state)),
            memory_bar,
            format_memory(gpu),
            format_value(gpu.utilization_pct, "%"),
            format_value(gpu.temperature_c, terminal_.charset == Charset::utf8 ? "°C" : "C"),
            format_value(gpu.power_w, "W")};
  }

  std::size_t total_width() const {
    std::size_t sum = 0;
    for (const GpuColumn& column : columns_) {
      if (column.width > 0) sum += column.width + (sum > 0 ? kGap.size() : 0);
    }
    return sum;
  }

  // Drops the vendor's name, which says little, and then cuts the middle, since the end often says
  // much ("MIG 3g.40gb").
  std::string shortened_name(std::string_view name) const {
    constexpr std::string_view kVendorPrefix = "NVIDIA ";
    const std::size_t room = columns_[c_name].width;
    if (display_width(name) > room && name.starts_with(kVendorPrefix))
      name.remove_prefix(kVendorPrefix.size());
    return truncate_middle(name, room, terminal_.charset);
  }

  void shrink_columns() {
    if (!terminal_.width) return;
    const auto shrink_column = [&](std::size_t c, std::size_t min_width) {
      const std::size_t excess =
          total_width() > *terminal_.width ? total_width() - *terminal_.width : 0;
      GpuColumn& column = columns_[c];
      column.width = column.width > excess + min_width ? column.width - excess
                                                       : std::min(column.width, min_width);
    };
    shrink_column(c_name, 2 * kMinNameWidth);
    for (const std::size_t c : {c_power, c_temp, c_bar, c_util}) {
      if (total_width() > *terminal_.width) columns_[c].width = 0;
    }
    shrink_column(c_name, kMinNameWidth);
  }

  std::string line(const std::vector<std::string>& cells, std::optional<Style> state_style) const {
    std::string out;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const GpuColumn& column = columns_[c];
      if (column.width == 0) continue;
      if (!out.empty()) out += kGap;
      const std::string cell = c == c_name
                                   ? shortened_name(cells[c])
                                   : truncate_text(cells[c], column.width, terminal_.charset);
      const std::string padded = column.align == Align::left ? align_left(cell, column.width)
                                                             : align_right(cell, column.width);
      const bool styled = state_style && (c == c_state || c == c_bar);
      out += styled ? terminal_.paint(*state_style, padded) : padded;
    }
    while (out.ends_with(' ')) out.pop_back();
    return out + "\n";
  }

  const Terminal& terminal_;
  std::array<GpuColumn, 8> columns_{{{"GPU", Align::right},
                                     {"NAME", Align::left},
                                     {"STATE", Align::left},
                                     {"", Align::left},
                                     {"MEMORY", Align::right},
                                     {"UTIL", Align::right},
                                     {"TEMP", Align::right},
                                     {"POWER", Align::right}}};
  std::vector<GpuRow> rows_;
};

// "! 4711  bob  python  9.1 GiB  no lease". A narrow terminal
// shortens the process name first, then the user.
std::string process_line(const AttributedProcess& attributed, const Terminal& terminal) {
  const GpuProcess& process = attributed.process;
  const bool stranger = attributed.is_stranger();
  const std::string pid = align_right(std::to_string(process.pid), 7);
  const std::string memory =
      align_right(process.memory ? format_size(*process.memory) : std::string(kAbsent), 8);
  const std::string note = !attributed.lease.empty() ? attributed.lease
                           : stranger                ? "no lease"
                           : attributed.daemon       ? "driver"
                                                     : "display";
  const std::string user =
      terminal.escape(process.uid ? user_name(*process.uid) : std::string(kAbsent));
  const std::string name = terminal.escape(process.name.value_or(std::string(kAbsent)));
  std::size_t user_room = ~0UL;
  std::size_t name_room = ~0UL;
  if (terminal.width) {
    const std::size_t fixed = kIndent + 2 + pid.size() + memory.size() + note.size() + 8;
    const std::size_t room = *terminal.width > fixed ? *terminal.width - fixed : 0;
    user_room = std::min<std::size_t>(10, room / 2);
    name_room = room - user_room;
  }
  const auto cell = [&](const std::string& content, std::size_t default_width, std::size_t room) {
    return align_left(truncate_text(content, room, terminal.charset),
                      std::min(default_width, room));
  };
  const std::string text =
      fmt::format("{} {}  {}  {}  {}  {}", stranger ? "!" : " ", pid, cell(user, 10, user_room),
                  cell(name, 15, name_room), memory, note);
  const std::size_t room = terminal.width ? std::max(*terminal.width, kIndent) - kIndent : ~0UL;
  return std::string(kIndent, ' ') +
         terminal.paint(stranger ? Style::bad : Style::dim,
                        truncate_text(text, room, terminal.charset)) +
         "\n";
}

std::string indent_and_truncate(const std::string& text, std::size_t indent,
                                const Terminal& terminal) {
  const std::size_t room = terminal.width ? std::max(*terminal.width, indent) - indent : ~0UL;
  return std::string(indent, ' ') + truncate_text(text, room, terminal.charset);
}

// "lease k3f9a2mx  bob  exclusive  for 10m  pid 4711  python train.py"; or "lease k3f9a2mx  same
// as on GPU 0" if the lines of an earlier GPU describe it.
std::string lease_line(const Record& lease, const std::string& described_at,
                       const Terminal& terminal, TimePoint now) {
  if (!described_at.empty()) {
    const std::string text = fmt::format("lease {}  same as on GPU {}", lease.id, described_at);
    return terminal.paint(Style::notice, indent_and_truncate(text, kIndent, terminal)) + "\n";
  }
  const auto idle = idle_since(lease, now);
  const std::string text = fmt::format(
      "lease {}  {}  {}  for {}  {}pid {}  {}", lease.id, terminal.escape(user_name(lease.uid)),
      lease.request.memory ? format_size(*lease.request.memory) : "exclusive",
      format_age(lease.granted, now),
      idle ? fmt::format("idle for {}  ", format_age(*idle, now)) : "", lease.pid,
      terminal.escape(record_title(lease)));
  return terminal.paint(idle ? Style::warning : Style::notice,
                        indent_and_truncate(text, kIndent, terminal)) +
         "\n";
}

// "1. k3f9a2mx  bob  2 GPUs  waiting 10m  pid 4711  python train.py", and the reason of the
// wait on the next line.
std::string ticket_lines(const TicketStatus& ticket, const Status& status, const Terminal& terminal,
                         TimePoint now) {
  const Record& record = ticket.record;
  std::string out =
      indent_and_truncate(fmt::format("{}. {}  {}  {}  waiting {}  pid {}  {}", ticket.position,
                                      record.id, terminal.escape(user_name(record.uid)),
                                      terminal.escape(format_request(record.request, status)),
                                      format_age(record.since, now), record.pid,
                                      terminal.escape(record_title(record))),
                          2, terminal) +
      "\n";
  const std::string reason = terminal.escape(format_wait_reason(ticket, now));
  return out + terminal.paint(Style::dim, wrap_text(reason, terminal.width, kIndent)) + "\n";
}

std::string summary_line(const Status& status, const Terminal& terminal) {
  const std::string data_age = format_data_age(status);
  return wrap_text(fmt::format("{} - {} - {}{}{}", terminal.escape(status.host),
                               terminal.escape(format_driver(status)), format_gpu_counts(status),
                               data_age.empty() ? "" : " - ", data_age),
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
  return out.empty() ? kEmptyQueueText : out;
}

std::string hosts_text(const std::vector<Status>& hosts, const Terminal& terminal) {
  if (hosts.empty()) return kNoHostsText;
  std::string out;
  for (const Status& host : hosts) {
    out += fmt::format("{}{}", out.empty() ? "" : "\n", status_text(host, terminal));
  }
  return out;
}

std::string hosts_queue_text(const std::vector<Status>& hosts, const Terminal& terminal) {
  if (hosts.empty()) return kNoHostsText;
  std::string out;
  for (const Status& host : hosts) {
    if (host.queue.empty()) continue;
    out += fmt::format("{}:\n{}", terminal.escape(host.host), queue_text(host, terminal));
  }
  return out.empty() ? kEmptyQueueText : out;
}

std::string status_text(const Status& status, const Terminal& terminal) {
  const TimePoint now = std::chrono::system_clock::now();
  if (!status.problem.empty()) {
    return wrap_text(fmt::format("{} - GPUs unknown: {}", terminal.escape(status.host),
                                 terminal.escape(status.problem)),
                     terminal.width, 0) +
           "\n";
  }
  std::string out = summary_line(status, terminal);
  if (status.gpus.empty()) return out + "The driver reports no GPU.\n";
  const GpuTable table(status, terminal);
  out += '\n';
  out += table.header();
  std::map<std::string, std::string> described_at;  // lease id -> the GPU whose lines describe it
  for (const GpuRow& row : table.rows()) {
    out += table.line(row);
    for (const Record& lease : status.leases) {
      const auto& gpu_leases = row.gpu->view.leases;
      if (std::find(gpu_leases.begin(), gpu_leases.end(), lease.id) == gpu_leases.end()) continue;
      out += lease_line(lease, described_at[lease.id], terminal, now);
      if (described_at[lease.id].empty())
        described_at[lease.id] = to_string(row.gpu->view.gpu.index);
    }
    for (const AttributedProcess& process : row.gpu->view.processes) {
      out += process_line(process, terminal);
    }
    if (!needs_reason_line(*row.gpu)) continue;
    const std::string reason = terminal.escape(row.gpu->state_reason.reason);
    out += terminal.paint(style_of(row.gpu->state_reason.state),
                          wrap_text(fmt::format("! {}", reason), terminal.width, kIndent)) +
           "\n";
  }
  if (!status.queue.empty()) {
    out +=
        fmt::format("\nQueue: {} waiting\n{}", status.queue.size(), queue_text(status, terminal));
  }
  return out;
}

}  // namespace berth
