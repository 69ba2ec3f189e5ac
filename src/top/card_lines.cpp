// The columns of the view; see card_lines.h.
#include "top/card_lines.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/time_text.h"
#include "base/users.h"
#include "status/status_parts.h"
#include "top/plots.h"

namespace berth::top {
namespace {

constexpr std::size_t kMargin = 1;
constexpr std::size_t kGap = 2;
constexpr std::size_t kLongestUser = 12;
constexpr std::size_t kTimeWidth = 7;   // "23h 59m"
constexpr std::size_t kShareWidth = 9;  // "exclusive"

std::string gap() {
  return std::string(kGap, ' ');
}

// The maker's name says little.
std::string_view name_of(const Gpu& gpu) {
  constexpr std::string_view maker = "NVIDIA ";
  if (!gpu.name) return kAbsent;
  std::string_view name = *gpu.name;
  if (name.starts_with(maker)) name.remove_prefix(maker.size());
  return name;
}

std::string degrees(const Gpu& gpu, Charset charset) {
  return figure(gpu.temperature_c, charset == Charset::utf8 ? "°C" : "C");
}

std::size_t total(const Columns& columns) {
  std::size_t sum = kMargin + columns.index;
  for (const std::size_t one :
       {columns.name, columns.state, columns.bar, columns.memory, columns.memory_plot,
        columns.utilization, columns.utilization_plot, columns.temperature, columns.power}) {
    if (one > 0) sum += one + kGap;
  }
  return sum;
}

// Where what belongs to a GPU begins.
std::size_t indent(const Drawing& with) {
  return kMargin + with.columns.index + kGap;
}

void add_cell(Line& line, Style style, const std::string& text, std::size_t width) {
  if (width > 0) line.add(Style::plain, gap()).add(style, text);
}

void add_plot(Line& line, const Series* series, std::size_t width, const Drawing& with) {
  if (width == 0) return;
  const Values values = series == nullptr ? Values{} : series->columns(width);
  add_cell(line, Style::notice, sparkline(values, width, with.sheet.charset), width);
}

Line gpu_line(const Row& row, const Drawing& with) {
  const Columns& columns = with.columns;
  const Charset charset = with.sheet.charset;
  const Gpu& gpu = row.gpu->placed.gpu;
  const GpuState state = row.gpu->judgement.state;
  const Track* track = with.history.of(*row.host, gpu);
  Line line;
  line.add(Style::plain, " ").add(Style::bold, right(berth::to_string(gpu.index), columns.index));
  add_cell(line, Style::plain,
           left(fitted_middle(with.sheet.show(name_of(gpu)), columns.name, charset), columns.name),
           columns.name);
  add_cell(line, style_of(state), left(berth::to_string(state), columns.state), columns.state);
  if (columns.bar > 0) {
    line.add(Style::plain, gap());
    add_memory_bar(line, *row.host, *row.gpu, columns.bar, charset);
  }
  add_cell(line, Style::plain, right(memory_figures(gpu), columns.memory), columns.memory);
  add_plot(line, track == nullptr ? nullptr : &track->memory, columns.memory_plot, with);
  add_cell(line, Style::plain, right(figure(gpu.utilization_pct, "%"), columns.utilization),
           columns.utilization);
  add_plot(line, track == nullptr ? nullptr : &track->utilization, columns.utilization_plot, with);
  add_cell(line, Style::plain, right(degrees(gpu, charset), columns.temperature),
           columns.temperature);
  add_cell(line, Style::plain, right(figure(gpu.power_w, "W"), columns.power), columns.power);
  return line;
}

// The user's column, and who it is.
void add_user(Line& line, uid_t uid, const Drawing& with) {
  const std::string name =
      fitted(with.sheet.show(user_name(uid)), with.columns.user, with.sheet.charset);
  line.add(uid == with.viewer ? Style::bold : Style::plain, left(name, with.columns.user));
}

Line lease_line(const Row& row, const Drawing& with) {
  const Record& lease = *row.lease;
  Line line = plain_line(Style::plain, std::string(indent(with), ' '));
  add_user(line, lease.uid, with);
  if (!row.said_at.empty()) {
    return line.add(Style::dim, fmt::format("  as on GPU {}", row.said_at));
  }
  const std::string share = lease.request.memory ? format_size(*lease.request.memory) : "exclusive";
  line.add(Style::dim, gap() + left(share, kShareWidth))
      .add(Style::dim, fmt::format("  for {}", left(ago(lease.granted, with.now), kTimeWidth)));
  if (const auto idle = idle_since(lease, with.now)) {
    line.add(Style::warning, fmt::format("  idle for {}", ago(*idle, with.now)));
  }
  return line.add(Style::plain, gap() + with.sheet.show(title_of(lease)));
}

Line process_line(const Row& row, const Drawing& with) {
  const GpuProcess& process = row.process->process;
  const std::string memory =
      process.memory ? format_size(*process.memory) : std::string("memory unknown");
  const std::string user =
      with.sheet.show(process.uid ? user_name(*process.uid) : std::string(kAbsent));
  return plain_line(
      Style::bad,
      fmt::format("{}{}  ! no lease: {} (pid {}), {}", std::string(indent(with), ' '),
                  left(fitted(user, with.columns.user, with.sheet.charset), with.columns.user),
                  with.sheet.show(process.name.value_or(std::string(kAbsent))), process.pid,
                  memory));
}

Line note_line(const Row& row, const Drawing& with) {
  return plain_line(style_of(row.gpu->judgement.state),
                    fmt::format("{}! {}", std::string(indent(with), ' '),
                                with.sheet.show(row.gpu->judgement.reason)));
}

Line host_line(const Row& row, const Drawing& with) {
  const Status& host = *row.host;
  Line line = plain_line(Style::bold, fmt::format(" {}", with.sheet.show(host.host)));
  if (!host.problem.empty()) {
    return line.add(Style::warning, fmt::format("  nothing is known of its GPUs: {}",
                                                with.sheet.show(host.problem)));
  }
  const std::string told = told_text(host);
  return line.add(Style::dim, fmt::format("  {}  {}{}{}", with.sheet.show(driver_text(host)),
                                          gpu_counts(host), told.empty() ? "" : "  ", told));
}

Line ticket_line(const Row& row, const Drawing& with) {
  const Record& record = row.ticket->record;
  Line line;
  line.add(
      Style::bold,
      fmt::format(" {}{}", right(std::to_string(row.ticket->position), with.columns.index), gap()));
  add_user(line, record.uid, with);
  const std::string where = row.host->elsewhere ? row.host->host + ": " : "";
  return line
      .add(Style::dim, fmt::format("  waits {}", left(ago(record.since, with.now), kTimeWidth)))
      .add(Style::plain, gap() + with.sheet.show(where + asked_for(record.request, *row.host)))
      .add(Style::plain, gap() + with.sheet.show(title_of(record)));
}

Line reason_line(const Row& row, const Drawing& with) {
  return plain_line(Style::dim, std::string(indent(with), ' ') +
                                    with.sheet.show(waits_because(*row.ticket, with.now)));
}

}  // namespace

Columns fit_columns(const TopSnapshot& picture, const Sheet& sheet) {
  Columns columns;
  std::size_t name = 4;
  for (const Status& host : picture.hosts) {
    for (const GpuStatus& one : host.gpus) {
      const Gpu& gpu = one.placed.gpu;
      columns.index = std::max(columns.index, berth::to_string(gpu.index).size());
      columns.memory = std::max(columns.memory, memory_figures(gpu).size());
      name = std::max(name, display_width(sheet.show(name_of(gpu))));
    }
    const auto user = [&](uid_t uid) {
      const std::size_t wide = display_width(sheet.show(user_name(uid)));
      columns.user = std::clamp(wide, columns.user, kLongestUser);
    };
    for (const Record& lease : host.leases) user(lease.uid);
    for (const TicketStatus& ticket : host.queue) user(ticket.record.uid);
  }
  const auto grow = [&](std::size_t& column, std::size_t to) {
    const std::size_t gap_too = column == 0 ? kGap : 0;
    const std::size_t used = total(columns) + gap_too;
    const std::size_t room = sheet.width > used + kMargin ? sheet.width - used - kMargin : 0;
    column += std::min(room, to > column ? to - column : 0);
  };
  if (total(columns) > sheet.width) columns.bar = 0;
  grow(columns.name, std::min<std::size_t>(name, 12));
  // In steps, so that a wider terminal gives each of them something.
  for (const std::size_t plot : {8UL, 12UL, 20UL, 40UL}) {
    const auto whole = [&](std::size_t& column, std::size_t to) {  // all of it, or nothing new
      const std::size_t before = column;
      grow(column, to);
      if (column < to && before == 0) column = 0;
    };
    whole(columns.utilization_plot, plot);
    whole(columns.memory_plot, plot);
    grow(columns.name, std::min<std::size_t>(name, 12 + plot));
    if (sheet.width >= 100) whole(columns.power, 5);
    grow(columns.bar, std::min<std::size_t>(10 + plot / 2, 24));
  }
  if (columns.memory_plot > 0) {  // equally wide, they can be compared
    columns.memory_plot = std::min(columns.memory_plot, columns.utilization_plot);
    columns.utilization_plot = columns.memory_plot;
  }
  return columns;
}

Line title_line(const Drawing& with) {
  const Columns& columns = with.columns;
  const std::string time = format_duration(with.history.length());
  std::string text = fmt::format(" {}", right("GPU", columns.index));
  const auto cell = [&](const std::string& title, std::size_t width, bool at_right) {
    if (width == 0) return;
    text += gap() + (at_right ? right(title, width) : left(fitted(title, width), width));
  };
  cell("NAME", columns.name, false);
  cell("STATE", columns.state, false);
  cell("", columns.bar, false);
  cell("MEMORY", columns.memory, true);
  cell(time, columns.memory_plot, true);
  cell("UTIL", columns.utilization, true);
  cell(time, columns.utilization_plot, true);
  cell("TEMP", columns.temperature, true);
  cell("POWER", columns.power, true);
  return plain_line(Style::dim, text);
}

Line row_line(const Row& row, const Drawing& with) {
  switch (row.kind) {
    case RowKind::host:
      return host_line(row, with);
    case RowKind::gpu:
      return gpu_line(row, with);
    case RowKind::lease:
      return lease_line(row, with);
    case RowKind::process:
      return process_line(row, with);
    case RowKind::note:
      return note_line(row, with);
    case RowKind::ticket:
      return ticket_line(row, with);
    case RowKind::reason:
      return reason_line(row, with);
  }
  return {};
}

}  // namespace berth::top
