// Computes column widths and renders rows; see row_lines.h.
#include "top/row_lines.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/time_text.h"
#include "base/users.h"
#include "status/status_format.h"
#include "top/plots.h"

namespace berth::top {
namespace {

constexpr std::size_t kMargin = 1;
constexpr std::size_t kGap = 2;
constexpr std::size_t kMaxUserWidth = 12;
constexpr std::size_t kTimeWidth = 7;   // "23h 59m"
constexpr std::size_t kShareWidth = 9;  // "exclusive"

std::string gap() {
  return std::string(kGap, ' ');
}

// Omits the vendor, which is the same for all GPUs.
std::string_view short_gpu_name(const Gpu& gpu) {
  constexpr std::string_view maker = "NVIDIA ";
  if (!gpu.name) return kAbsent;
  std::string_view name = *gpu.name;
  if (name.starts_with(maker)) name.remove_prefix(maker.size());
  return name;
}

std::string degrees(const Gpu& gpu, Charset charset) {
  return format_value(gpu.temperature_c, charset == Charset::utf8 ? "°C" : "C");
}

std::size_t total_width(const ColumnWidths& columns) {
  std::size_t sum = kMargin + columns.index;
  for (const std::size_t width :
       {columns.name, columns.state, columns.bar, columns.memory, columns.memory_plot,
        columns.utilization, columns.utilization_plot, columns.temperature, columns.power}) {
    if (width > 0) sum += width + kGap;
  }
  return sum;
}

// The column where the rows below a GPU begin.
std::size_t indent(const RenderContext& context) {
  return kMargin + context.columns.index + kGap;
}

void add_cell(StyledLine& line, Style style, const std::string& text, std::size_t width) {
  if (width > 0) line.add(Style::plain, gap()).add(style, text);
}

void add_plot(StyledLine& line, const Series* series, std::size_t width,
              const RenderContext& context) {
  if (width == 0) return;
  const Values values = series == nullptr ? Values{} : series->columns(width);
  add_cell(line, Style::notice, sparkline(values, width, context.canvas.charset), width);
}

StyledLine gpu_line(const Row& row, const RenderContext& context) {
  const ColumnWidths& columns = context.columns;
  const Charset charset = context.canvas.charset;
  const Gpu& gpu = row.gpu->view.gpu;
  const GpuState state = row.gpu->state_reason.state;
  const GpuSeries* gpu_series = context.history.find(*row.host, gpu);
  StyledLine line;
  line.add(Style::plain, " ")
      .add(Style::bold, align_right(berth::to_string(gpu.index), columns.index));
  add_cell(
      line, Style::plain,
      align_left(truncate_middle(context.canvas.escape(short_gpu_name(gpu)), columns.name, charset),
                 columns.name),
      columns.name);
  add_cell(line, style_of(state), align_left(berth::to_string(state), columns.state),
           columns.state);
  if (columns.bar > 0) {
    line.add(Style::plain, gap());
    add_memory_bar(line, *row.host, *row.gpu, columns.bar, charset);
  }
  add_cell(line, Style::plain, align_right(format_memory(gpu), columns.memory), columns.memory);
  add_plot(line, gpu_series == nullptr ? nullptr : &gpu_series->memory, columns.memory_plot,
           context);
  add_cell(line, Style::plain,
           align_right(format_value(gpu.utilization_pct, "%"), columns.utilization),
           columns.utilization);
  add_plot(line, gpu_series == nullptr ? nullptr : &gpu_series->utilization,
           columns.utilization_plot, context);
  add_cell(line, Style::plain, align_right(degrees(gpu, charset), columns.temperature),
           columns.temperature);
  add_cell(line, Style::plain, align_right(format_value(gpu.power_w, "W"), columns.power),
           columns.power);
  return line;
}

void add_user(StyledLine& line, uid_t uid, const RenderContext& context) {
  const std::string name = truncate_text(context.canvas.escape(user_name(uid)),
                                         context.columns.user, context.canvas.charset);
  line.add(uid == context.viewer ? Style::bold : Style::plain,
           align_left(name, context.columns.user));
}

StyledLine lease_line(const Row& row, const RenderContext& context) {
  const Record& lease = *row.lease;
  StyledLine line = make_line(Style::plain, std::string(indent(context), ' '));
  add_user(line, lease.uid, context);
  if (!row.shown_at_gpu.empty()) {
    return line.add(Style::dim, fmt::format("  same lease as on GPU {}", row.shown_at_gpu));
  }
  const std::string share = lease.request.memory ? format_size(*lease.request.memory) : "exclusive";
  line.add(Style::dim, gap() + align_left(share, kShareWidth))
      .add(Style::dim,
           fmt::format("  for {}", align_left(format_age(lease.granted, context.now), kTimeWidth)));
  if (const auto idle = idle_since(lease, context.now)) {
    line.add(Style::warning, fmt::format("  idle for {}", format_age(*idle, context.now)));
  }
  return line.add(Style::plain, gap() + context.canvas.escape(record_title(lease)));
}

StyledLine process_line(const Row& row, const RenderContext& context) {
  const GpuProcess& process = row.process->process;
  const std::string memory =
      process.memory ? format_size(*process.memory) : std::string("memory unknown");
  const std::string user =
      context.canvas.escape(process.uid ? user_name(*process.uid) : std::string(kAbsent));
  return make_line(
      Style::bad,
      fmt::format("{}{}  ! no lease: {} (pid {}), {}", std::string(indent(context), ' '),
                  align_left(truncate_text(user, context.columns.user, context.canvas.charset),
                             context.columns.user),
                  context.canvas.escape(process.name.value_or(std::string(kAbsent))), process.pid,
                  memory));
}

StyledLine note_line(const Row& row, const RenderContext& context) {
  return make_line(style_of(row.gpu->state_reason.state),
                   fmt::format("{}! {}", std::string(indent(context), ' '),
                               context.canvas.escape(row.gpu->state_reason.reason)));
}

StyledLine host_line(const Row& row, const RenderContext& context) {
  const Status& host = *row.host;
  StyledLine line = make_line(Style::bold, fmt::format(" {}", context.canvas.escape(host.host)));
  if (!host.problem.empty()) {
    return line.add(Style::warning,
                    fmt::format("  GPUs unknown: {}", context.canvas.escape(host.problem)));
  }
  const std::string freshness = format_data_age(host);
  return line.add(Style::dim,
                  fmt::format("  {}  {}{}{}", context.canvas.escape(format_driver(host)),
                              format_gpu_counts(host), freshness.empty() ? "" : "  ", freshness));
}

StyledLine ticket_line(const Row& row, const RenderContext& context) {
  const Record& record = row.ticket->record;
  StyledLine line;
  line.add(
      Style::bold,
      fmt::format(" {}{}", align_right(std::to_string(row.ticket->position), context.columns.index),
                  gap()));
  add_user(line, record.uid, context);
  const std::string where = row.host->is_remote ? row.host->host + ": " : "";
  return line
      .add(Style::dim, fmt::format("  waiting {}",
                                   align_left(format_age(record.since, context.now), kTimeWidth)))
      .add(Style::plain,
           gap() + context.canvas.escape(where + format_request(record.request, *row.host)))
      .add(Style::plain, gap() + context.canvas.escape(record_title(record)));
}

StyledLine reason_line(const Row& row, const RenderContext& context) {
  return make_line(Style::dim,
                   std::string(indent(context), ' ') +
                       context.canvas.escape(format_wait_reason(*row.ticket, context.now)));
}

}  // namespace

ColumnWidths compute_column_widths(const TopSnapshot& snapshot, const Canvas& canvas) {
  ColumnWidths columns;
  std::size_t name = 4;
  for (const Status& host : snapshot.hosts) {
    for (const GpuStatus& status : host.gpus) {
      const Gpu& gpu = status.view.gpu;
      columns.index = std::max(columns.index, berth::to_string(gpu.index).size());
      columns.memory = std::max(columns.memory, format_memory(gpu).size());
      name = std::max(name, display_width(canvas.escape(short_gpu_name(gpu))));
    }
    const auto user = [&](uid_t uid) {
      const std::size_t text_width = display_width(canvas.escape(user_name(uid)));
      columns.user = std::clamp(text_width, columns.user, kMaxUserWidth);
    };
    for (const Record& lease : host.leases) user(lease.uid);
    for (const TicketStatus& ticket : host.queue) user(ticket.record.uid);
  }
  const auto grow = [&](std::size_t& column, std::size_t to) {
    const std::size_t new_gap = column == 0 ? kGap : 0;
    const std::size_t used = total_width(columns) + new_gap;
    const std::size_t room = canvas.width > used + kMargin ? canvas.width - used - kMargin : 0;
    column += std::min(room, to > column ? to - column : 0);
  };
  if (total_width(columns) > canvas.width) columns.bar = 0;
  grow(columns.name, std::min<std::size_t>(name, 12));
  // In steps, so that extra width is distributed over all columns.
  for (const std::size_t plot : {8UL, 12UL, 20UL, 40UL}) {
    // Adds a column only if its full width fits.
    const auto grow_fully = [&](std::size_t& column, std::size_t to) {
      const std::size_t before = column;
      grow(column, to);
      if (column < to && before == 0) column = 0;
    };
    grow_fully(columns.utilization_plot, plot);
    grow_fully(columns.memory_plot, plot);
    grow(columns.name, std::min<std::size_t>(name, 12 + plot));
    if (canvas.width >= 100) grow_fully(columns.power, 5);
    grow(columns.bar, std::min<std::size_t>(10 + plot / 2, 24));
  }
  if (columns.memory_plot > 0) {  // plots of equal width can be compared
    columns.memory_plot = std::min(columns.memory_plot, columns.utilization_plot);
    columns.utilization_plot = columns.memory_plot;
  }
  return columns;
}

StyledLine title_line(const RenderContext& context) {
  const ColumnWidths& columns = context.columns;
  const std::string time = format_duration(context.history.duration());
  std::string text = fmt::format(" {}", align_right("GPU", columns.index));
  const auto cell = [&](const std::string& title, std::size_t width, bool at_right) {
    if (width == 0) return;
    text += gap() +
            (at_right ? align_right(title, width) : align_left(truncate_text(title, width), width));
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
  return make_line(Style::dim, text);
}

StyledLine row_line(const Row& row, const RenderContext& context) {
  switch (row.kind) {
    case RowKind::host:
      return host_line(row, context);
    case RowKind::gpu:
      return gpu_line(row, context);
    case RowKind::lease:
      return lease_line(row, context);
    case RowKind::process:
      return process_line(row, context);
    case RowKind::note:
      return note_line(row, context);
    case RowKind::ticket:
      return ticket_line(row, context);
    case RowKind::reason:
      return reason_line(row, context);
  }
  return {};
}

}  // namespace berth::top
