// The table of `berth status -v`, with leases and processes below each GPU; see status_details.h.
#include "cli/output/status_details.h"

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
    if (const auto share = memory_share(gpu))
      memory_bar = format_bar(*share, kBarWidth, terminal_.charset);
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
    const std::size_t room = columns_[c_name].width;
    if (display_width(name) > room) name = without_vendor(name);
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

// "lease k3f9a2mx  bob  ends in 40m  for 10m  exclusive  pid 4711  python train.py"; or "lease
// k3f9a2mx  same as on GPU 0" if the lines of an earlier GPU describe it.
std::string lease_line(const Record& lease, const std::string& described_at,
                       const Terminal& terminal, TimePoint now, uid_t viewer) {
  if (!described_at.empty()) {
    const std::string text = fmt::format("lease {}  same as on GPU {}", lease.id, described_at);
    return terminal.paint(Style::notice, indent_and_truncate(text, kIndent, terminal)) + "\n";
  }
  const auto idle = idle_since(lease, now);
  const auto end = find_lease_end(lease, now);
  if (!lease.is_readable()) {
    const std::string text =
        fmt::format("lease {}  {}  {}", lease.id, terminal.escape(user_name(lease.uid)),
                    terminal.escape(label_and_command(lease)));
    return terminal.paint(Style::warning, indent_and_truncate(text, kIndent, terminal)) + "\n";
  }
  const std::string text = fmt::format(
      "lease {}  {}{}  {}for {}  {}{}  pid {}  {}", lease.id, lease.uid == viewer ? "*" : "",
      terminal.escape(user_name(lease.uid)),
      end ? format_end(end, now, TextForm::sentence) + "  " : "", format_age(lease.granted, now),
      idle ? fmt::format("idle for {}  ", format_age(*idle, now)) : "",
      lease.request.memory ? format_size(*lease.request.memory) : "exclusive", lease.pid,
      terminal.escape(label_and_command(lease)));
  const bool is_unusual = idle || (end && end->overdue);
  return terminal.paint(is_unusual ? Style::warning : Style::notice,
                        indent_and_truncate(text, kIndent, terminal)) +
         "\n";
}

}  // namespace

std::string status_details(const Status& status, const Terminal& terminal, uid_t viewer) {
  const GpuTable table(status, terminal);
  std::string out = table.header();
  std::map<std::string, std::string> described_at;  // lease id -> the GPU whose lines describe it
  for (const GpuRow& row : table.rows()) {
    out += table.line(row);
    for (const Record& lease : status.leases) {
      if (!row.gpu->view.has_lease(lease.id)) continue;
      out += lease_line(lease, described_at[lease.id], terminal, status.time, viewer);
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
  return out;
}

}  // namespace berth
