// What is shown of a batch.
#include "batch/progress.h"

#include <gtest/gtest.h>

#include "batch/gpu_share.h"
#include "batch/progress_display.h"
#include "batch/run_events.h"
#include "schedule/plan.h"

namespace berth::batch {
namespace {

using namespace std::chrono_literals;

Terminal plain(std::size_t width) {
  Terminal terminal;
  terminal.width = width;
  return terminal;
}

Progress some() {
  Progress progress{.total = 20, .succeeded = 9, .failed = 1};
  progress.running = {{"0", 192s, "train \x1b[31m1"}, {"1,2", 5s, "train 2"}, {"3", 1s, "train 3"}};
  progress.elapsed = 600s;
  progress.left = 1860s;
  return progress;
}

TEST(ProgressLines, say_how_far_it_is_and_what_runs_where) {
  EXPECT_EQ(progress_lines(some(), plain(80), 20),
            (std::vector<std::string>{"##################xx======.............. 10/20 (50%)",
                                      "3 running, 1 failed, 7 waiting, 10m, about 31m left",
                                      "GPU 0    3m 12s  train \\x1b[31m1",
                                      "GPU 1,2      5s  train 2", "GPU 3        1s  train 3"}));
}

TEST(ProgressLines, fit_every_terminal) {
  for (std::size_t width = 1; width < 100; ++width) {
    for (std::size_t rows = 1; rows < 10; ++rows) {
      const auto lines = progress_lines(some(), plain(width), rows);
      EXPECT_LE(lines.size(), rows);
      if (width < 2) continue;
      for (const std::string& line : lines) EXPECT_LT(display_width(line), width) << line;
    }
  }
  const auto low = progress_lines(some(), plain(80), 4);
  EXPECT_EQ(low.back(), "and 2 more");
}

TEST(ProgressLines, say_why_nothing_runs) {
  Progress progress{.total = 2, .reason = "GPU 0 leased by bob"};
  EXPECT_EQ(progress_lines(progress, plain(80), 9).back(), "waiting: GPU 0 leased by bob");
  progress.stopping = true;
  EXPECT_EQ(progress_lines(progress, plain(80), 9).back(),
            "0 running, 0 failed, 2 waiting, 0s, stopping (Ctrl-C again kills)");
}

TEST(RunTimes, goes_by_the_type_then_by_what_was_learned_then_by_the_others) {
  RunTimes times;
  EXPECT_FALSE(times.knows("a"));
  EXPECT_EQ(times.seconds("a", std::nullopt), std::nullopt);
  times.ended("a", 10s);
  times.ended("a", 20s);
  EXPECT_TRUE(times.knows("a"));
  EXPECT_EQ(times.seconds("a", 99), 15);
  EXPECT_EQ(times.seconds("b", 99), 99);
  EXPECT_EQ(times.seconds("b", std::nullopt), 15);
}

TEST(EndText, says_what_happened) {
  const TimePoint begin{};
  EXPECT_EQ(end_text({.begin = begin, .end = begin + 75s}), "ok in 1m 15s");
  EXPECT_EQ(end_text({.code = 3, .begin = begin, .end = begin + 40ms}),
            "failed (exit 3) after 40ms");
  EXPECT_EQ(end_text({.code = 143, .timed_out = true, .begin = begin, .end = begin + 2s}),
            "failed (time limit, signal 15) after 2s");
  EXPECT_EQ(end_text({.code = 1, .out_of_memory = true, .begin = begin, .end = begin + 2s}),
            "failed (out of memory, exit 1) after 2s");
}

TEST(RunEvents, come_whole_however_they_are_cut) {
  RunEvents events;
  EXPECT_TRUE(events.take(R"({"event": "waiting", "rea)").empty());
  const auto first =
      events.take("son\": \"bob\"}\nnonsense\n{\"event\": 5}\n{\"event\":\"granted\",");
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].text, "bob");
  const auto second = events.take(R"("lease":"abc","gpus":"0,1"})"
                                  "\n");
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].kind, RunEvent::Kind::granted);
  EXPECT_EQ(second[0].gpus, "0,1");
}

TEST(ShareOfCard, so_many_fit_and_no_more) {
  for (const Bytes card : {gib(6), gib(24), gib(80), mib(24217)}) {
    for (unsigned jobs = 2; jobs <= 100; ++jobs) {
      const std::uint64_t share = share_of_card(card, jobs).count;
      EXPECT_LE(share * jobs + kContextMargin.count, card.count);
      EXPECT_GT(share * (jobs + 1) + kContextMargin.count, card.count) << jobs;
    }
  }
}

}  // namespace
}  // namespace berth::batch
