// Unit tests of timeline.h: spans that are cut, merged, shared, running, nested and limited.
#include "archive/timeline.h"

#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>

namespace berth {
namespace {

using std::chrono::seconds;

const TimePoint kBegin = TimePoint(seconds(1'763'251'200));

TimePoint at_second(std::int64_t second) {
  return kBegin + seconds(second);
}

class TimelineTest : public testing::Test {
 protected:
  TimelineTest() {
    query_.since = at_second(0);
    query_.until = at_second(7200);
    query_.this_host = "here";
    query_.resolution = seconds(10);
  }

  // A lease of user 1 on GPU 0; `change` can modify it.
  void lease(std::int64_t from, std::int64_t to,
             const std::function<void(HistoryEntry&)>& change = {}) {
    HistoryEntry entry;
    entry.id = fmt::format("a{:07}", ++number_);
    entry.uid = 1;
    entry.gpus = {{"GPU-0", "0", "A6000"}};
    entry.asked = entry.granted = at_second(from);
    entry.ended = at_second(to);
    entry.ending = Ending::exited;
    if (change) change(entry);
    table_.add(make_entry_view(entry));
  }

  // "1: 0-10 x1, 2: 20-30 x3 shared".
  std::string spans(std::size_t gpu = 0) {
    const Timeline timeline = make_timeline(table_, query_);
    std::string text;
    if (gpu >= timeline.gpus.size()) return "no such GPU";
    for (const TimelineSpan& span : timeline.gpus[gpu].spans) {
      const auto second = [](TimePoint time) {
        return std::chrono::floor<seconds>(time - kBegin).count();
      };
      text += fmt::format("{}{}: {}-{} x{}{}", text.empty() ? "" : ", ", span.owner.uid,
                          second(span.start), second(span.end), span.leases,
                          span.shared ? " shared" : "");
    }
    return text;
  }

  LeaseTable table_;
  TimelineQuery query_;
  int number_ = 0;
};

const auto by_other = [](HistoryEntry& entry) { entry.uid = 2; };
const auto share = [](HistoryEntry& entry) { entry.memory = gib(1); };

TEST_F(TimelineTest, empty_table) {
  EXPECT_TRUE(make_timeline(table_, query_).gpus.empty());
}

TEST_F(TimelineTest, clips_spans_to_the_query) {
  lease(-100, 50);
  lease(7000, 9000);
  lease(-100, -50);
  lease(8000, 9000);
  EXPECT_EQ(spans(), "1: 0-50 x1, 1: 7000-7200 x1");
}

TEST_F(TimelineTest, merges_spans_closer_than_the_resolution) {
  lease(0, 10);
  lease(19, 30);
  lease(40, 50);  // after a gap as long as the resolution
  EXPECT_EQ(spans(), "1: 0-30 x2, 1: 40-50 x1");
}

TEST_F(TimelineTest, does_not_merge_long_leases) {
  lease(0, 80);
  lease(80, 160);  // long enough for a block of its own
  lease(160, 170);
  lease(175, 260);
  lease(200, 300, share);  // overlaps
  EXPECT_EQ(spans(), "1: 0-80 x1, 1: 80-170 x2, 1: 175-300 x2 shared");
}

TEST_F(TimelineTest, does_not_merge_different_users) {
  lease(0, 10);
  lease(10, 20, by_other);
  lease(20, 30);
  EXPECT_EQ(spans(), "1: 0-10 x1, 2: 10-20 x1, 1: 20-30 x1");
}

TEST_F(TimelineTest, shared_leases_overlap) {
  lease(0, 100, share);
  lease(50, 200, [](HistoryEntry& entry) { share(entry), by_other(entry); });
  lease(60, 150, share);
  EXPECT_EQ(spans(), "1: 0-150 x2 shared, 2: 50-200 x1 shared");
}

TEST_F(TimelineTest, running_leases_end_at_until) {
  lease(100, 101, [](HistoryEntry& entry) { entry.ending = Ending::running; });
  EXPECT_EQ(spans(), "1: 100-7200 x1");
}

TEST_F(TimelineTest, ignores_nested_leases) {
  lease(0, 100);
  lease(10, 5000, [](HistoryEntry& entry) { entry.parent_lease = "a0000001"; });
  EXPECT_EQ(spans(), "1: 0-100 x1");
}

TEST_F(TimelineTest, sorts_gpus_by_host_and_index_with_their_latest_names) {
  lease(0, 10, [](HistoryEntry& entry) { entry.gpus = {{"GPU-b", "10", "old"}}; });
  lease(20, 30, [](HistoryEntry& entry) { entry.gpus = {{"GPU-b", "9", "new"}}; });
  lease(40, 50, [](HistoryEntry& entry) { entry.gpus = {{"GPU-b", "", ""}}; });
  lease(0, 10, [](HistoryEntry& entry) {
    entry.gpus = {{"GPU-b", "0", "there"}};
    entry.host = "another";
  });
  query_.present = {{"GPU-a", "10", "idle", "here"}};
  const Timeline timeline = make_timeline(table_, query_);
  std::string rows;
  for (const TimelineGpu& row : timeline.gpus) {
    rows += fmt::format("{} {} {} {} {}\n", row.gpu.host, row.gpu.index, row.gpu.uuid, row.gpu.name,
                        row.spans.size());
  }
  EXPECT_EQ(rows, "another 0 GPU-b there 1\nhere 9 GPU-b new 3\nhere 10 GPU-a idle 0\n");
}

TEST_F(TimelineTest, bounds_the_number_of_spans) {
  for (int i = 0; i < 5000; ++i) {
    lease(i, i, [i](HistoryEntry& entry) {
      entry.uid = static_cast<uid_t>(i % 7);
      entry.granted = entry.ended = kBegin + std::chrono::milliseconds(1400 * i);
    });
  }
  query_.resolution = seconds(1);
  const Timeline timeline = make_timeline(table_, query_);
  ASSERT_EQ(timeline.gpus.size(), 1U);
  EXPECT_LE(timeline.gpus[0].spans.size(), 400U);
  std::size_t leases = 0;
  for (const TimelineSpan& span : timeline.gpus[0].spans) leases += span.leases;
  EXPECT_EQ(leases, 5000U);
  EXPECT_FALSE(timeline.truncated);  // only coarser
}

// The history of a hostile user can name any number of GPUs that do not exist.
TEST_F(TimelineTest, bounds_the_number_of_spans_of_all_gpus) {
  const auto on = [](std::string uuid) {
    return [uuid](HistoryEntry& entry) { entry.gpus = {{uuid, "0", "A6000"}}; };
  };
  query_.present = {{"GPU-z", "0", "A6000", "here"}};
  for (int i = 0; i < 100; ++i) lease(20 * i, 20 * i + 5, on("GPU-z"));
  for (int i = 0; i < 1000; ++i) lease(0, 10, on(fmt::format("GPU-{}", i)));
  EXPECT_EQ(make_timeline(table_, query_).gpus.size(), 1 + kMaxFormerGpus);
  for (int i = 0; i < 150; ++i) {
    for (int j = 1; j < 150; ++j) lease(40 * j, 40 * j + 5, on(fmt::format("GPU-{}", i)));
  }
  const Timeline timeline = make_timeline(table_, query_);
  EXPECT_TRUE(timeline.truncated);
  std::size_t spans = 0;
  std::size_t of_present = 0;
  for (const TimelineGpu& row : timeline.gpus) {
    spans += row.spans.size();
    if (row.gpu.uuid == "GPU-z") of_present = row.spans.size();
  }
  EXPECT_LE(spans, kMaxTimelineSpans);
  EXPECT_GT(spans, kMaxTimelineSpans - 400);  // the last GPU has a coarser resolution
  EXPECT_EQ(of_present, 100U);
}

TEST_F(TimelineTest, present_gpus_share_the_spans) {
  for (int i = 0; i < 1000; ++i) {
    const std::string uuid = fmt::format("GPU-{:04}", i);
    query_.present.push_back({uuid, "0", "A6000", "here"});
    for (int j = 0; j < 30; ++j) {
      lease(200 * j, 200 * j + 20, [&](HistoryEntry& entry) {
        entry.gpus = {{uuid, "0", "A6000"}};
      });
    }
  }
  const Timeline timeline = make_timeline(table_, query_);
  ASSERT_EQ(timeline.gpus.size(), 1000U);
  std::size_t leases = 0;
  for (const TimelineGpu& row : timeline.gpus) {
    EXPECT_LE(row.spans.size(), kMaxTimelineSpans / 1000);
    for (const TimelineSpan& span : row.spans) leases += span.leases;
  }
  EXPECT_EQ(leases, 30'000U);
}

TEST_F(TimelineTest, keeps_the_longest_spans_of_too_many_users) {
  for (int i = 0; i < 1000; ++i) {
    lease(0, i, [i](HistoryEntry& entry) { entry.uid = static_cast<uid_t>(i + 1), share(entry); });
  }
  const Timeline timeline = make_timeline(table_, query_);
  EXPECT_EQ(timeline.gpus[0].spans.size(), 400U);
  EXPECT_TRUE(timeline.truncated);
  for (const TimelineSpan& span : timeline.gpus[0].spans) EXPECT_GE(span.end, at_second(600));
}

TEST(TimelineResolution, is_one_720th) {
  EXPECT_EQ(timeline_resolution(at_second(0), at_second(86400)), seconds(120));
  EXPECT_EQ(timeline_resolution(at_second(0), at_second(10)), seconds(1));
}

}  // namespace
}  // namespace berth
