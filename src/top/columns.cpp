// Distributes the width of the screen; see columns.h.
#include "top/columns.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/users.h"
#include "status/status_format.h"

namespace berth::top {
namespace {

constexpr std::size_t kMaxUserWidth = 12;
constexpr std::size_t kNarrowJobWidth = 8;
constexpr std::size_t kMinJobWidth = 24;  // of a compact list: for the label or command of a lease

std::size_t total_width(const ColumnWidths& columns) {
  std::size_t sum = gpu_columns_width(columns);
  if (columns.detail != RowDetail::compact) return sum;
  for (const std::size_t width : {columns.user, columns.ends, columns.age}) {
    if (width > 0) sum += width + kGap;
  }
  return sum;
}

// The columns whose widths depend on their texts. Returns the widest name of a GPU.
std::size_t measure_texts(ColumnWidths& columns, const TopSnapshot& snapshot, const Canvas& canvas,
                          TimePoint now) {
  std::size_t name = 4;
  const auto measure_user = [&](uid_t uid) {
    const std::size_t width = display_width(canvas.escape(user_name(uid)));
    columns.user = std::clamp(width, columns.user, kMaxUserWidth);
  };
  for (const Status& host : snapshot.hosts) {
    for (const GpuStatus& status : host.gpus) {
      const Gpu& gpu = status.view.gpu;
      columns.index = std::max(columns.index, berth::to_string(gpu.index).size());
      columns.memory = std::max(columns.memory, format_memory(gpu).size());
      name = std::max(name, display_width(canvas.escape(short_gpu_name(gpu))));
    }
    for (const Record& lease : host.leases) {
      measure_user(lease.uid);
      columns.ends = std::max(columns.ends, end_text(lease, columns.detail, now).text.size());
    }
    for (const TicketStatus& ticket : host.queue) {
      measure_user(ticket.record.uid);
      columns.starts = std::max(columns.starts, start_text(ticket, now).text.size());
      columns.waited =
          std::max(columns.waited, format_rough_duration(now - ticket.record.since).size());
    }
  }
  return name;
}

// Gives columns more of the width that is left.
class ColumnGrower {
 public:
  ColumnGrower(ColumnWidths& columns, std::size_t width) : columns_(columns), width_(width) {}

  void grow(std::size_t& column, std::size_t to) {
    const std::size_t new_gap = column == 0 ? kGap : 0;
    const std::size_t used = total_width(columns_) + new_gap;
    const std::size_t room = width_ > used + kMargin ? width_ - used - kMargin : 0;
    column += std::min(room, to > column ? to - column : 0);
  }
  // Adds a column only if its full width fits.
  void grow_fully(std::size_t& column, std::size_t to) {
    const std::size_t before = column;
    grow(column, to);
    if (column < to && before == 0) column = 0;
  }

 private:
  ColumnWidths& columns_;
  std::size_t width_;
};

// The rest of a line is for the label and command of the lease.
void fit_compact(ColumnWidths& columns, std::size_t name, std::size_t width) {
  columns.bar = 0;
  columns.age = 0;
  // The end and the beginning of the job's name matter more than these.
  for (std::size_t* const column : {&columns.temperature, &columns.utilization}) {
    if (total_width(columns) + kNarrowJobWidth > width) *column = 0;
  }
  ColumnGrower grower(columns, width - std::min(width, kMinJobWidth));
  grower.grow_fully(columns.age, 6);
  grower.grow_fully(columns.bar, 10);
  grower.grow_fully(columns.name, std::min<std::size_t>(name, 12));
  grower.grow_fully(columns.utilization_plot, 12);
  grower.grow_fully(columns.power, 5);
  if (columns.name > 0) grower.grow(columns.name, std::min<std::size_t>(name, 24));
}

void fit_full(ColumnWidths& columns, std::size_t name, std::size_t width) {
  ColumnGrower grower(columns, width);
  if (total_width(columns) > width) columns.bar = 0;
  grower.grow(columns.name, std::min<std::size_t>(name, 12));
  // In steps, so that extra width is distributed over all columns.
  for (const std::size_t plot : {8UL, 12UL, 20UL, 40UL}) {
    grower.grow_fully(columns.utilization_plot, plot);
    grower.grow_fully(columns.memory_plot, plot);
    grower.grow(columns.name, std::min<std::size_t>(name, 12 + plot));
    if (width >= 100) grower.grow_fully(columns.power, 5);
    grower.grow(columns.bar, std::min<std::size_t>(10 + plot / 2, 24));
  }
  if (columns.memory_plot > 0) {  // plots of equal width can be compared
    columns.memory_plot = std::min(columns.memory_plot, columns.utilization_plot);
    columns.utilization_plot = columns.memory_plot;
  }
}

}  // namespace

std::size_t gpu_columns_width(const ColumnWidths& columns) {
  std::size_t sum = kMargin + columns.index;
  for (const std::size_t width :
       {columns.name, columns.state, columns.bar, columns.memory, columns.memory_plot,
        columns.utilization, columns.utilization_plot, columns.temperature, columns.power}) {
    if (width > 0) sum += width + kGap;
  }
  return sum;
}

ColumnWidths compute_column_widths(const TopSnapshot& snapshot, RowDetail detail,
                                   const Canvas& canvas, TimePoint now) {
  ColumnWidths columns;
  columns.detail = detail;
  const std::size_t name = measure_texts(columns, snapshot, canvas, now);
  if (detail == RowDetail::compact) {
    fit_compact(columns, name, canvas.width);
  } else {
    fit_full(columns, name, canvas.width);
  }
  return columns;
}

std::string_view short_gpu_name(const Gpu& gpu) {
  return gpu.name ? without_vendor(*gpu.name) : kAbsent;
}

StyledText end_text(const Record& lease, RowDetail detail, TimePoint now) {
  const auto end = find_lease_end(lease, now);
  const Style style = !end ? Style::dim : end->overdue ? Style::warning : Style::plain;
  return {style, format_end(end, now,
                            detail == RowDetail::compact ? TextForm::column : TextForm::sentence)};
}

StyledText start_text(const TicketStatus& ticket, TimePoint now) {
  if (!is_start_expected(ticket.starts, now))
    return {Style::dim, format_start(ticket.starts, now, TextForm::sentence)};
  return {Style::plain,
          fmt::format("starts {}", format_start(ticket.starts, now, TextForm::column))};
}

}  // namespace berth::top
