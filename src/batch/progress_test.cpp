// Tests of the progress text, run events and --per-gpu.
#include "batch/progress.h"

#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <string>

#include "batch/gpu_share.h"
#include "batch/progress_display.h"
#include "batch/run_event_parser.h"
#include "schedule/plan.h"

namespace berth::batch {
namespace {

using namespace std::chrono_literals;

Terminal plain(std::size_t width) {
  Terminal terminal;
  terminal.width = width;
  return terminal;
}

Progress make_progress() {
  Progress progress{.total = 20, .succeeded = 9, .failed = 1};
  progress.running = {{"0", 192s, 11, "train \x1b[31m1", "1"},
                      {"1,2", 5s, 2, "train 2", "2"},
                      {"3", 1s, 13, "train 3", ""}};
  progress.elapsed = 600s;
  progress.left = 1860s;
  return progress;
}

TEST(ProgressLines, show_progress_and_running_jobs) {
  EXPECT_EQ(progress_lines(make_progress(), plain(80), 20),
            (std::vector<std::string>{"##################xx======.............. 10/20 (50%)",
                                      "3 running, 1 failed, 7 waiting; 10m elapsed, about 31m left",
                                      "GPU 0    3m 12s  [11]  train \\x1b[31m1",
                                      "GPU 1,2      5s   [2]  train 2",
                                      "GPU 3        1s  [13]  train 3"}));
}

TEST(ProgressLines, show_short_commands_if_not_all_fit) {
  const auto lines = progress_lines(make_progress(), plain(37), 20);
  EXPECT_EQ(std::vector<std::string>(lines.end() - 3, lines.end()),
            (std::vector<std::string>{"GPU 0    3m 12s  [11]  1", "GPU 1,2      5s   [2]  2",
                                      "GPU 3        1s  [13]  train 3"}));
}

TEST(ProgressLines, fit_every_terminal) {
  for (std::size_t width = 1; width < 100; ++width) {
    for (std::size_t rows = 1; rows < 10; ++rows) {
      const auto lines = progress_lines(make_progress(), plain(width), rows);
      EXPECT_LE(lines.size(), rows);
      if (width < 2) continue;
      for (const std::string& line : lines) EXPECT_LT(display_width(line), width) << line;
    }
  }
  const auto low = progress_lines(make_progress(), plain(80), 4);
  EXPECT_EQ(low.back(), "and 2 more");
}

TEST(ProgressLines, show_why_nothing_runs) {
  Progress progress{.total = 2, .reason = "GPU 0 leased by bob"};
  EXPECT_EQ(progress_lines(progress, plain(80), 9).back(), "waiting: GPU 0 leased by bob");
  progress.starts_in = 40min;
  EXPECT_EQ(progress_lines(progress, plain(80), 9).back(),
            "waiting, starts in about 40m: GPU 0 leased by bob");
  progress.starts_in = -1s;
  EXPECT_EQ(progress_lines(progress, plain(80), 9).back(), "waiting: GPU 0 leased by bob");
  progress.stopping = true;
  EXPECT_EQ(progress_lines(progress, plain(80), 9).back(),
            "0 running, 0 failed, 2 waiting; 0s elapsed, stopping (Ctrl-C again kills)");
}

TEST(RunTimes, uses_own_type_then_profile_then_other_types) {
  std::map<std::string, double> profiles{{"a", 99}, {"b", 99}};
  std::size_t reads = 0;
  RunTimes times([&](const std::string& type) -> std::optional<double> {
    ++reads;
    const auto found = profiles.find(type);
    return found == profiles.end() ? std::nullopt : std::optional(found->second);
  });
  EXPECT_EQ(times.expected_seconds("c"), std::nullopt);
  times.add("a", 10s);
  times.add("a", 20s);
  EXPECT_EQ(times.expected_seconds("a"), 15);
  EXPECT_EQ(times.expected_seconds("b"), 99);
  EXPECT_EQ(times.expected_seconds("c"), 15);
  EXPECT_EQ(reads, 2U);
  profiles["b"] = 50;
  EXPECT_EQ(times.expected_seconds("b"), 99);
  times.on_line_ended("b");
  EXPECT_EQ(times.expected_seconds("b"), 50);
  EXPECT_EQ(RunTimes().expected_seconds("a"), std::nullopt);
}

TEST(EstimateTimeLeft, assumes_that_as_many_lines_keep_running) {
  RunTimes times;
  times.add("a", 10s);
  EXPECT_EQ(estimate_time_left(times, {{"a", 4}}, {{"a", 4s}, {"a", 6s}}), 25s);
  EXPECT_EQ(estimate_time_left(times, {{"a", 0}}, {{"a", 4s}, {"a", 9s}}), 6s);  // the longest
  EXPECT_EQ(estimate_time_left(times, {}, {{"a", 4s}, {"a"}}), 16s);
  EXPECT_EQ(estimate_time_left(times, {}, {{"a", 12s}}), 0s);
  EXPECT_EQ(estimate_time_left(times, {{"a", 4}}, {{"a"}}), std::nullopt) << "no line runs";
  RunTimes unknown;
  EXPECT_EQ(estimate_time_left(unknown, {{"a", 1}}, {{"a", 1s}}), std::nullopt);
}

TEST(FormatLineResult, says_what_happened) {
  const TimePoint begin{};
  EXPECT_EQ(format_line_result({.begin = begin, .end = begin + 75s}), "ok in 1m 15s");
  EXPECT_EQ(format_line_result({.code = 3, .begin = begin, .end = begin + 40ms}),
            "failed (exit 3) after 40ms");
  EXPECT_EQ(format_line_result({.code = 143, .timed_out = true, .begin = begin, .end = begin + 2s}),
            "failed (time limit, signal 15) after 2s");
  EXPECT_EQ(
      format_line_result({.code = 1, .out_of_memory = true, .begin = begin, .end = begin + 2s}),
      "failed (out of memory, exit 1) after 2s");
}

TEST(RunEventParser, parses_events_split_at_any_byte) {
  RunEventParser events;
  EXPECT_TRUE(events.parse_bytes(R"({"event": "waiting", "rea)").empty());
  const auto first =
      events.parse_bytes("son\": \"bob\"}\nnonsense\n{\"event\": 5}\n{\"event\":\"granted\",");
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].text, "bob");
  const auto second = events.parse_bytes(R"("lease":"abc","gpus":"0,1"})"
                                         "\n");
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].kind, RunEvent::Kind::granted);
  EXPECT_EQ(second[0].gpus, "0,1");
  EXPECT_EQ(first[0].starts, std::nullopt);
  const auto third = events.parse_bytes(R"({"event":"waiting","reason":"bob","starts_s":60})"
                                        "\n");
  ASSERT_EQ(third.size(), 1U);
  EXPECT_EQ(third[0].starts, TimePoint(60s));
}

TEST(MemoryPerJob, exactly_that_many_jobs_fit) {
  for (const Bytes card : {gib(6), gib(24), gib(80), mib(24217)}) {
    for (unsigned jobs = 2; jobs <= 100; ++jobs) {
      const std::uint64_t share = memory_per_job(card, jobs).count;
      EXPECT_LE(share * jobs + kContextMargin.count, card.count);
      EXPECT_GT(share * (jobs + 1) + kContextMargin.count, card.count) << jobs;
    }
  }
}

}  // namespace
}  // namespace berth::batch
