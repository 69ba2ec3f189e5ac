#include "cli/batch/line_order.h"

#include <gtest/gtest.h>
#include <map>

namespace berth {
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

TEST(LineOrder, what_needs_most_comes_first) {
  const std::map<std::string, double> needs{{"small", 1}, {"large", 9}, {"middle", 5}};
  LineOrder order({0, 1, 2, 3, 4}, {"small", "large", "small", "middle", "large"},
                  [&](const std::string& type) { return needs.at(type); });
  EXPECT_EQ(all(order), (Order{1, 4, 3, 0, 2}));
}

TEST(LineOrder, one_of_each_unknown_type_is_measured_first) {
  std::map<std::string, double> needs{{"known", 5}};
  const auto need = [&](const std::string& type) {
    const auto found = needs.find(type);
    return found == needs.end() ? std::nullopt : std::optional(found->second);
  };
  LineOrder order({0, 1, 2, 3, 4}, {"known", "new", "new", "other", "new"}, need);
  EXPECT_EQ(order.next(), 1U);
  EXPECT_EQ(order.next(), 3U);
  EXPECT_EQ(order.next(), 0U);
  needs["new"] = 1;
  order.ended(1);
  EXPECT_EQ(all(order), (Order{2, 4}));
}

TEST(LineOrder, a_type_that_stays_unknown_does_not_keep_the_others) {
  LineOrder order({0, 1, 2}, {"a", "a", "b"}, [](const std::string&) { return std::nullopt; });
  EXPECT_EQ(all(order), (Order{0, 2, 1}));
}

}  // namespace
}  // namespace berth
