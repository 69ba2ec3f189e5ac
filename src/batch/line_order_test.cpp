// Tests of the order of lines.
#include "batch/line_order.h"

#include <gtest/gtest.h>
#include <map>

namespace berth::batch {
namespace {

using Order = std::vector<std::size_t>;

Order take_all(LineOrder& order) {
  Order taken;
  while (const auto line = order.next()) taken.push_back(*line);
  return taken;
}

TEST(LineOrder, keeps_file_order_by_default) {
  LineOrder order({3, 1, 7});
  EXPECT_EQ(order.remaining(), 3U);
  EXPECT_EQ(take_all(order), (Order{3, 1, 7}));
  EXPECT_EQ(order.remaining(), 0U);
}

TEST(LineOrder, retries_come_before_other_lines) {
  LineOrder order({0, 1, 2});
  ASSERT_EQ(order.next(), 0U);
  order.on_line_ended(0);
  order.requeue(0);
  EXPECT_EQ(order.remaining(), 3U);
  EXPECT_EQ(take_all(order), (Order{0, 1, 2}));
}

TEST(LineOrder, largest_work_comes_first) {
  const std::map<std::string, double> work{{"small", 2}, {"large", 9}, {"middle", 5}};
  LineOrder order({0, 1, 2, 3, 4}, {"small", "large", "small", "middle", "large"},
                  [&](const std::string& type) { return work.at(type); });
  EXPECT_EQ(order.known_lines(9), (Order{1, 4, 3, 0, 2}));
  EXPECT_EQ(order.known_lines(1), (Order{1, 3, 0}));
  order.remove(3);
  EXPECT_EQ(order.remaining(), 4U);
  EXPECT_EQ(take_all(order), (Order{1, 4, 0, 2}));
  EXPECT_EQ(order.known_lines(9), Order{});
}

TEST(LineOrder, one_of_each_unknown_type_is_measured_first) {
  std::map<std::string, double> times{{"known", 5}};
  const auto seconds = [&](const std::string& type) {
    const auto found = times.find(type);
    return found == times.end() ? std::nullopt : std::optional(found->second);
  };
  LineOrder order({0, 1, 2, 3, 4}, {"known", "new", "new", "other", "new"}, seconds);
  EXPECT_EQ(order.known_lines(9), Order{0});
  EXPECT_EQ(order.next_required(), 1U);
  EXPECT_EQ(order.next_required(), 3U);
  EXPECT_EQ(order.next_required(), std::nullopt);
  EXPECT_EQ(order.next(), 0U);
  times["new"] = 1;
  order.on_line_ended(1);
  EXPECT_EQ(take_all(order), (Order{2, 4}));
}

TEST(LineOrder, a_type_that_stays_unknown_does_not_block_other_types) {
  LineOrder order({0, 1, 2}, {"a", "a", "b"}, [](const std::string&) { return std::nullopt; });
  EXPECT_EQ(take_all(order), (Order{0, 2, 1}));
}

}  // namespace
}  // namespace berth::batch
