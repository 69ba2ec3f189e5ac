// Which line comes next.
#include "batch/line_order.h"

#include <gtest/gtest.h>
#include <map>

namespace berth::batch {
namespace {

using Order = std::vector<std::size_t>;

Order all(LineOrder& order) {
  Order taken;
  while (const auto line = order.next()) taken.push_back(*line);
  return taken;
}

TEST(LineOrder, is_that_of_the_file) {
  LineOrder order({3, 1, 7});
  EXPECT_EQ(order.left(), 3U);
  EXPECT_EQ(all(order), (Order{3, 1, 7}));
  EXPECT_EQ(order.left(), 0U);
}

TEST(LineOrder, what_failed_comes_again_before_the_others) {
  LineOrder order({0, 1, 2});
  ASSERT_EQ(order.next(), 0U);
  order.ended(0);
  order.again(0);
  EXPECT_EQ(order.left(), 3U);
  EXPECT_EQ(all(order), (Order{0, 1, 2}));
}

TEST(LineOrder, what_takes_up_most_comes_first) {
  const std::map<std::string, double> work{{"small", 2}, {"large", 9}, {"middle", 5}};
  LineOrder order({0, 1, 2, 3, 4}, {"small", "large", "small", "middle", "large"},
                  [&](const std::string& type) { return work.at(type); });
  EXPECT_EQ(order.known(9), (Order{1, 4, 3, 0, 2}));
  EXPECT_EQ(order.known(1), (Order{1, 3, 0}));
  order.take(3);
  EXPECT_EQ(order.left(), 4U);
  EXPECT_EQ(all(order), (Order{1, 4, 0, 2}));
  EXPECT_EQ(order.known(9), Order{});
}

TEST(LineOrder, one_of_each_unknown_type_is_measured_first) {
  std::map<std::string, double> times{{"known", 5}};
  const auto seconds = [&](const std::string& type) {
    const auto found = times.find(type);
    return found == times.end() ? std::nullopt : std::optional(found->second);
  };
  LineOrder order({0, 1, 2, 3, 4}, {"known", "new", "new", "other", "new"}, seconds);
  EXPECT_EQ(order.known(9), Order{0});
  EXPECT_EQ(order.next_in_any_case(), 1U);
  EXPECT_EQ(order.next_in_any_case(), 3U);
  EXPECT_EQ(order.next_in_any_case(), std::nullopt);
  EXPECT_EQ(order.next(), 0U);
  times["new"] = 1;
  order.ended(1);
  EXPECT_EQ(all(order), (Order{2, 4}));
}

TEST(LineOrder, a_type_that_stays_unknown_does_not_keep_the_others) {
  LineOrder order({0, 1, 2}, {"a", "a", "b"}, [](const std::string&) { return std::nullopt; });
  EXPECT_EQ(all(order), (Order{0, 2, 1}));
}

}  // namespace
}  // namespace berth::batch
