// Arranges charts in a grid; see plot_panel.h.
#include "top/plot_panel.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include "base/time_text.h"
#include "top/columns.h"
#include "top/plots.h"

namespace berth::top {
namespace {

constexpr std::size_t kMinChartWidth = 19;  // with the gap before it
constexpr std::size_t kMinChartHeight = 3;  // with its title
constexpr std::size_t kAspect = 5;          // a chart looks best with 5 columns for each line

struct ChartSource {
  std::string name;                   // "GPU 0", escaped
  std::vector<const Series*> series;  // the chart shows their average
  ValueStyle style;
};

struct Grid {
  std::size_t rows = 1;
  std::size_t columns = 1;
  std::size_t width = 0;   // of a chart, with the gap before it
  std::size_t height = 0;  // of a chart, with its title
};

// The grid whose charts have the best shape; nullopt if the charts would be too small.
// Each row has whole groups of `group` charts.
std::optional<Grid> find_grid(std::size_t charts, std::size_t group, std::size_t width,
                              std::size_t height) {
  std::optional<Grid> best;
  const std::size_t groups = charts / group;
  const auto score = [](const Grid& grid) { return std::min(grid.width, kAspect * grid.height); };
  for (std::size_t rows = 1; rows <= groups; ++rows) {
    const std::size_t columns = (groups + rows - 1) / rows * group;
    const Grid grid{rows, columns, (width - kMargin) / columns, height / rows};
    if (grid.width < kMinChartWidth || grid.height < kMinChartHeight) continue;
    if (!best || score(grid) > score(*best)) best = grid;
  }
  return best;
}

Values average(const std::vector<const Series*>& all, std::size_t width) {
  std::vector<double> sums;
  std::vector<std::size_t> counts;
  for (const Series* series : all) {
    const Values values = series->columns(width);
    // All series have the same length, see PlotHistory::add_snapshot().
    sums.resize(std::max(sums.size(), values.size()));
    counts.resize(sums.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!values[i]) continue;
      sums[i] += *values[i];
      ++counts[i];
    }
  }
  Values averages;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    averages.push_back(counts[i] == 0 ? std::nullopt
                                      : std::optional(sums[i] / static_cast<double>(counts[i])));
  }
  return averages;
}

std::vector<StyledLine> chart_lines(const ChartSource& chart, const Grid& grid,
                                    const Canvas& canvas) {
  const std::size_t width = grid.width - kGap;
  const Values values = average(chart.series, width);
  std::vector<StyledLine> lines{
      make_line(Style::dim, truncate_text(chart.name, width, canvas.charset))};
  for (StyledLine& line : tall_plot(values, width, grid.height - 1, chart.style, canvas.charset)) {
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<StyledLine> grid_lines(const std::vector<ChartSource>& charts, const Grid& grid,
                                   const Canvas& canvas) {
  std::vector<StyledLine> lines(grid.rows * grid.height);
  for (std::size_t i = 0; i < charts.size(); ++i) {
    const std::size_t top = i / grid.columns * grid.height;
    const std::size_t left = kMargin + i % grid.columns * grid.width;
    auto chart = chart_lines(charts[i], grid, canvas);
    for (std::size_t row = 0; row < chart.size(); ++row) {
      StyledLine& line = lines[top + row];
      line.add(Style::plain, std::string(left - line.width(), ' '));
      line.append(std::move(chart[row]));
    }
  }
  return lines;
}

struct Gpus {
  std::vector<ChartSource> utilization;
  std::vector<ChartSource> memory;
};

Gpus find_gpus(const std::vector<Row>& rows, const PlotHistory& history, const Canvas& canvas) {
  Gpus gpus;
  for (const Row& row : rows) {
    const Gpu* gpu = row.kind == RowKind::gpu ? &row.gpu->view.gpu : nullptr;
    const GpuSeries* series = gpu == nullptr ? nullptr : history.find(*row.host, *gpu);
    if (series == nullptr) continue;
    const std::string name =
        fmt::format("{}GPU {}", row.host->is_remote ? canvas.escape(row.host->host) + " " : "",
                    berth::to_string(gpu->index));
    gpus.utilization.push_back({name + " utilization", {&series->utilization}, load_style});
    gpus.memory.push_back({name + " memory", {&series->memory}, memory_style});
  }
  return gpus;
}

// The utilization of all GPUs, or their memory, in one chart.
ChartSource join_charts(const char* name, const std::vector<ChartSource>& all) {
  ChartSource chart{name, {}, all.front().style};
  for (const ChartSource& one : all) chart.series.push_back(one.series.front());
  return chart;
}

}  // namespace

std::vector<StyledLine> plot_panel(const std::vector<Row>& rows, const PlotHistory& history,
                                   const Canvas& canvas, std::size_t height, TimePoint now) {
  const Gpus gpus = find_gpus(rows, history, canvas);
  if (gpus.utilization.empty() || height < kMinPanelHeight) return {};
  std::vector<ChartSource> both;
  for (std::size_t i = 0; i < gpus.utilization.size(); ++i) {
    both.push_back(gpus.utilization[i]);
    both.push_back(gpus.memory[i]);
  }
  struct Choice {
    const char* text;
    std::size_t group;
    std::vector<ChartSource> charts;
  };
  const std::vector<Choice> choices{
      {"Utilization and memory of each GPU", 2, std::move(both)},
      {"Utilization of each GPU", 1, gpus.utilization},
      {"Average utilization and memory of all GPUs shown",
       2,
       {join_charts("utilization", gpus.utilization), join_charts("memory", gpus.memory)}}};
  for (const Choice& choice : choices) {
    const auto grid = find_grid(choice.charts.size(), choice.group, canvas.width, height - 1);
    if (!grid) continue;
    const auto duration = history.duration();
    std::vector<StyledLine> lines{make_line(
        Style::dim,
        fmt::format(" {}, 0 to 100%, since {} ({})", choice.text,
                    format_local_time(now - duration, "%H:%M"), format_duration(duration)))};
    for (StyledLine& line : grid_lines(choice.charts, *grid, canvas)) {
      lines.push_back(std::move(line));
    }
    return lines;
  }
  return {};
}

}  // namespace berth::top
