// Tests that a Series covers the whole time in few points, and that missing values stay unknown.
#include "top/series.h"

#include <gtest/gtest.h>

#include "top/plots.h"

namespace berth::top {
namespace {

using namespace std::chrono_literals;

TEST(Series, few_values_are_shown_as_they_are) {
  Series series;
  series.add(0.0);
  series.add(std::nullopt);
  series.add(1.0);
  EXPECT_EQ(series.columns(8), (Values{0.0, std::nullopt, 1.0}));
  EXPECT_TRUE(Series().columns(8).empty());
}

TEST(Series, many_values_are_averages_of_what_was_known) {
  Series series;
  for (int i = 0; i < 8; ++i) series.add(i < 4 ? 0.0 : 1.0);
  EXPECT_EQ(series.columns(2), (Values{0.0, 1.0}));
  series.add(std::nullopt);
  EXPECT_EQ(series.columns(1), (Values{0.5}));
}

TEST(Series, keeps_the_whole_time_in_bounded_memory) {
  Series series;
  const std::size_t count = 10 * Series::kMaxPoints;
  for (std::size_t i = 0; i < count; ++i) series.add(i < count / 2 ? 0.0 : 1.0);
  const auto all = series.columns(100'000);
  EXPECT_LE(all.size(), Series::kMaxPoints);
  EXPECT_GE(all.size(), Series::kMaxPoints / 2);
  const auto ten = series.columns(10);
  EXPECT_EQ(ten.front(), 0.0);
  EXPECT_EQ(ten.back(), 1.0);
}

std::vector<Status> hosts_with(std::optional<unsigned> utilization) {
  Status host;
  host.host = "here";
  GpuStatus gpu{{}, {GpuState::free, ""}};
  gpu.view.gpu.uuid = "GPU-1";
  gpu.view.gpu.utilization_pct = utilization;
  host.gpus.push_back(gpu);
  return {host};
}

TEST(PlotHistory, keeps_one_value_per_span_and_none_for_missed_spans) {
  PlotHistory history(1000ms);
  const PlotHistory::Clock::time_point begin{};
  const auto hosts = hosts_with(50);
  history.add_snapshot(hosts, begin);
  history.add_snapshot(hosts_with(100), begin + 500ms);  // the same second
  history.add_snapshot(hosts_with(0), begin + 1100ms);
  history.add_snapshot(hosts, begin + 6200ms);  // a late snapshot also counts for the missed spans
  history.add_snapshot(hosts, begin + 20s);
  const GpuSeries* gpu_series = history.find(hosts.front(), hosts.front().gpus.front().view.gpu);
  ASSERT_NE(gpu_series, nullptr);
  const auto values = gpu_series->utilization.columns(100);
  ASSERT_EQ(values.size(), 21U);
  EXPECT_EQ(Values(values.begin(), values.begin() + 8),
            (Values{0.5, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5, std::nullopt}));
  EXPECT_EQ(values.back(), 0.5);
  EXPECT_EQ(gpu_series->memory.columns(1), (Values{std::nullopt}));
  EXPECT_EQ(history.duration(), 21s);
  Gpu unseen;
  EXPECT_EQ(history.find(hosts.front(), unseen), nullptr);
}

std::string sparkline(const Values& values, std::size_t width, Charset charset) {
  StyledLine line;
  add_sparkline(line, values, width, load_style, charset);
  return line.text();
}

TEST(Plots, unknown_is_not_zero) {
  EXPECT_EQ(sparkline({0.0, std::nullopt, 0.5, 1.0}, 6, Charset::utf8), "  ▁ ▄█");
  EXPECT_EQ(sparkline({0.0, std::nullopt, 0.5, 1.0}, 6, Charset::ascii), "  _ -#");
  EXPECT_EQ(sparkline({0.0, 1.0, 1.0}, 2, Charset::ascii), "##");
}

TEST(Plots, tall_plot_draws_zero_as_a_line) {
  const auto lines = tall_plot({0.0, 0.5, 1.0, std::nullopt}, 4, 2, load_style, Charset::utf8);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].text(), "  █ ");
  EXPECT_EQ(lines[1].text(), "▁██ ");
}

TEST(Plots, each_column_has_the_style_of_its_value) {
  const auto lines = tall_plot({0.02, 0.3, 0.31, 0.6, 1.0}, 5, 1, load_style, Charset::ascii);
  std::vector<std::pair<Style, std::size_t>> runs;
  for (const StyledText& piece : lines[0].pieces) runs.emplace_back(piece.style, piece.text.size());
  EXPECT_EQ(runs, (std::vector<std::pair<Style, std::size_t>>{
                      {Style::dim, 1}, {Style::notice, 2}, {Style::good, 1}, {Style::warning, 1}}));
}

TEST(Plots, a_hot_gpu_stands_out) {
  EXPECT_EQ(temperature_style(79), Style::plain);
  EXPECT_EQ(temperature_style(80), Style::warning);
  EXPECT_EQ(temperature_style(90), Style::bad);
  EXPECT_EQ(temperature_style(std::nullopt), Style::dim);
}

}  // namespace
}  // namespace berth::top
