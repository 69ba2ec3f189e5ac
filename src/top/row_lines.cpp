// Renders rows; see row_lines.h.
#include "top/row_lines.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/time_text.h"
#include "base/users.h"
#include "status/status_format.h"
#include "top/plots.h"

namespace berth::top {
namespace {

constexpr std::size_t kShareWidth = 9;  // "exclusive"

std::string gap() {
  return std::string(kGap, ' ');
}

std::string degrees(const Gpu& gpu, Charset charset) {
  return format_value(gpu.temperature_c, charset == Charset::utf8 ? "°C" : "C");
}

// The column where the rows below a GPU begin.
std::size_t indent(const RenderContext& context) {
  return kMargin + context.columns.index + kGap;
}

bool is_compact(const RenderContext& context) {
  return context.columns.detail == RowDetail::compact;
}

void add_cell(StyledLine& line, Style style, const std::string& text, std::size_t width) {
  if (width > 0) line.add(Style::plain, gap()).add(style, text);
}

void add_plot(StyledLine& line, const Series* series, std::size_t width, ValueStyle style,
              const RenderContext& context) {
  if (width == 0) return;
  const Values values = series == nullptr ? Values{} : series->columns(width);
  line.add(Style::plain, gap());
  add_sparkline(line, values, width, style, context.canvas.charset);
}

Style value_style(const std::optional<unsigned>& percent) {
  return percent ? load_style(*percent / 100.0) : Style::dim;
}

// The columns with the figures of a GPU.
StyledLine gpu_cells(const Row& row, const RenderContext& context) {
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
  const auto memory = memory_share(gpu);
  add_cell(line, memory && memory_style(*memory) == Style::warning ? Style::warning : Style::plain,
           align_right(format_memory(gpu), columns.memory), columns.memory);
  add_plot(line, gpu_series == nullptr ? nullptr : &gpu_series->memory, columns.memory_plot,
           memory_style, context);
  add_cell(line, value_style(gpu.utilization_pct),
           align_right(format_value(gpu.utilization_pct, "%"), columns.utilization),
           columns.utilization);
  add_plot(line, gpu_series == nullptr ? nullptr : &gpu_series->utilization,
           columns.utilization_plot, load_style, context);
  add_cell(line, temperature_style(gpu.temperature_c),
           align_right(degrees(gpu, charset), columns.temperature), columns.temperature);
  add_cell(line, Style::plain, align_right(format_value(gpu.power_w, "W"), columns.power),
           columns.power);
  return line;
}

void add_user(StyledLine& line, std::optional<uid_t> uid, const RenderContext& context) {
  const std::string name =
      truncate_text(context.canvas.escape(uid ? user_name(*uid) : std::string(kAbsent)),
                    context.columns.user, context.canvas.charset);
  line.add(uid == context.viewer ? Style::bold : Style::plain,
           align_left(name, context.columns.user));
}

std::string held_time(const Record& lease, const RenderContext& context) {
  return lease.is_readable() ? format_rough_duration(context.now - lease.granted)
                             : std::string(kAbsent);
}

// The label and the command; only the command if there is no label.
void add_title(StyledLine& line, const Record& record, const RenderContext& context) {
  if (!record.is_readable()) {
    line.add(Style::warning, gap() + label_and_command(record));
    return;
  }
  line.add(Style::plain, gap() + context.canvas.escape(record_title(record)));
  if (!record.label.empty()) {
    line.add(Style::dim, gap() + context.canvas.escape(record.command));
  }
}

// The columns of a lease in a compact list, behind those of its GPU.
void add_compact_lease(StyledLine& line, const Record& lease, const RenderContext& context) {
  const ColumnWidths& columns = context.columns;
  line.add(Style::plain, gap());
  add_user(line, lease.uid, context);
  const StyledText end = end_text(lease, columns.detail, context.now);
  add_cell(line, end.style, align_left(end.text, columns.ends), columns.ends);
  add_cell(line, Style::dim, align_left(held_time(lease, context), columns.age), columns.age);
  if (const auto idle = idle_since(lease, context.now)) {
    line.add(Style::warning, fmt::format("  idle {}", format_rough_duration(context.now - *idle)));
  }
  if (lease.request.memory) line.add(Style::dim, gap() + format_size(*lease.request.memory));
  add_title(line, lease, context);
}

std::string process_text(const GpuProcess& process, const RenderContext& context) {
  return fmt::format("{} (pid {}), {}",
                     context.canvas.escape(process.name.value_or(std::string(kAbsent))),
                     process.pid, process.memory ? format_size(*process.memory) : "memory unknown");
}

void add_stranger(StyledLine& line, const GpuProcess& process, const RenderContext& context) {
  const std::string user =
      context.canvas.escape(process.uid ? user_name(*process.uid) : std::string(kAbsent));
  line.add(Style::bad, align_left(truncate_text(user, context.columns.user, context.canvas.charset),
                                  context.columns.user))
      .add(Style::bad, fmt::format("  ! no lease: {}", process_text(process, context)));
}

void add_reason(StyledLine& line, const GpuStateReason& state, const RenderContext& context) {
  line.add(style_of(state.state), fmt::format("! {}", context.canvas.escape(state.reason)));
}

StyledLine gpu_line(const Row& row, const RenderContext& context) {
  StyledLine line = gpu_cells(row, context);
  if (row.inline_lease != nullptr) {
    add_compact_lease(line, *row.inline_lease, context);
  } else if (row.inline_process != nullptr) {
    line.add(Style::plain, gap());
    add_stranger(line, row.inline_process->process, context);
  } else if (row.has_inline_reason) {
    line.add(Style::plain, gap());
    add_reason(line, row.gpu->state_reason, context);
  }
  return line;
}

// The line begins where the columns of leases begin.
StyledLine line_below_gpu(const RenderContext& context) {
  const std::size_t width =
      is_compact(context) ? gpu_columns_width(context.columns) + kGap : indent(context);
  return make_line(Style::plain, std::string(width, ' '));
}

StyledLine lease_line(const Row& row, const RenderContext& context) {
  const Record& lease = *row.lease;
  if (is_compact(context)) {
    StyledLine line = make_line(Style::plain, std::string(gpu_columns_width(context.columns), ' '));
    add_compact_lease(line, lease, context);
    return line;
  }
  StyledLine line = line_below_gpu(context);
  add_user(line, lease.uid, context);
  if (!row.shown_at_gpu.empty()) {
    return line.add(Style::dim, fmt::format("  same lease as on GPU {}", row.shown_at_gpu));
  }
  const StyledText end = end_text(lease, context.columns.detail, context.now);
  const std::string share = lease.request.memory ? format_size(*lease.request.memory) : "exclusive";
  add_cell(line, end.style, align_left(end.text, context.columns.ends), context.columns.ends);
  line.add(Style::dim, gap() + align_left(share, kShareWidth))
      .add(Style::dim,
           fmt::format("  for {}", align_left(held_time(lease, context), context.columns.age)));
  if (const auto idle = idle_since(lease, context.now)) {
    line.add(Style::warning, fmt::format("  idle {}", format_rough_duration(context.now - *idle)));
  }
  add_title(line, lease, context);
  return line;
}

StyledLine process_line(const Row& row, const RenderContext& context) {
  StyledLine line = line_below_gpu(context);
  const GpuProcess& process = row.process->process;
  if (row.process->is_stranger()) {
    add_stranger(line, process, context);
    return line;
  }
  if (row.lease == nullptr) {
    add_user(line, process.uid, context);
    return line.add(Style::dim, fmt::format("  {}: {}", row.process->daemon ? "driver" : "display",
                                            process_text(process, context)));
  }
  return line.add(Style::plain, std::string(context.columns.user + kGap, ' '))
      .add(Style::dim, process_text(process, context));
}

StyledLine note_line(const Row& row, const RenderContext& context) {
  StyledLine line = line_below_gpu(context);
  add_reason(line, row.gpu->state_reason, context);
  return line;
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
  const StyledText start = start_text(*row.ticket, context.now);
  add_cell(line, start.style, align_left(start.text, context.columns.starts),
           context.columns.starts);
  const std::string where = row.host->is_remote ? row.host->host + ": " : "";
  line.add(Style::dim,
           fmt::format("  waiting {}", align_left(format_rough_duration(context.now - record.since),
                                                  context.columns.waited)))
      .add(Style::plain,
           gap() + context.canvas.escape(where + format_request(record.request, *row.host)));
  add_title(line, record, context);
  return line;
}

StyledLine reason_line(const Row& row, const RenderContext& context) {
  return make_line(Style::dim,
                   std::string(indent(context), ' ') + context.canvas.escape(row.ticket->reason));
}

}  // namespace

StyledLine title_line(const RenderContext& context) {
  const ColumnWidths& columns = context.columns;
  const std::string time = format_duration(context.history.duration());
  std::string text = fmt::format(" {}", align_right("GPU", columns.index));
  const auto cell = [&](const std::string& title, std::size_t width, bool at_right) {
    if (width == 0) return;
    text += gap() +
            (at_right ? align_right(title, width) : align_left(truncate_text(title, width), width));
  };
  const auto plot_cell = [&](std::size_t width) {
    const std::string words = fmt::format("last {}", time);
    cell(words.size() <= width ? words : time, width, true);
  };
  cell("NAME", columns.name, false);
  cell("STATE", columns.state, false);
  cell("", columns.bar, false);
  cell("MEMORY", columns.memory, true);
  plot_cell(columns.memory_plot);
  cell("UTIL", columns.utilization, true);
  plot_cell(columns.utilization_plot);
  cell("TEMP", columns.temperature, true);
  cell("POWER", columns.power, true);
  if (is_compact(context)) {
    cell("USER", columns.user, false);
    cell("ENDS", columns.ends, false);
    cell("HELD", columns.age, false);
    cell("JOB", 3, false);
  }
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
