// Unit tests of lists of GPUs as users write them, and of the messages about wrong ones.
#include "lease/gpu_list.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

using Uuids = std::vector<std::string>;

Gpu gpu(GpuIndex index, std::optional<std::string> uuid) {
  Gpu gpu;
  gpu.index = index;
  gpu.uuid = std::move(uuid);
  return gpu;
}

Gpu lost_gpu(GpuIndex index, std::optional<std::string> uuid) {
  Gpu lost = gpu(index, std::move(uuid));
  lost.health = Health::lost;
  lost.problem = "the driver has lost it; reboot";
  return lost;
}

// Four cards; the UUIDs of 1 and 2 have a common prefix.
std::vector<Gpu> cards() {
  return {gpu({0, {}}, "GPU-aa00"), gpu({1, {}}, "GPU-bb10"), gpu({2, {}}, "GPU-bb20"),
          gpu({3, {}}, "GPU-cc30")};
}

// A card, and a card in MIG mode whose second instance was destroyed.
std::vector<Gpu> with_mig() {
  return {gpu({0, {}}, "GPU-aa00"), gpu({1, 0}, "MIG-dd10"), gpu({1, 2}, "MIG-dd12")};
}

// The message contains each of the parts.
void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << message << "\n  lacks: " << part;
  }
}

std::string selection_error(const std::vector<Gpu>& gpus, std::string_view list, ErrorKind kind) {
  const auto uuids = select_gpus(gpus, list);
  if (uuids) return "";
  EXPECT_EQ(uuids.error().kind, kind) << uuids.error().message;
  return uuids.error().message;
}

TEST(SelectGpus, by_index_in_the_order_named) {
  EXPECT_EQ(select_gpus(cards(), "2"), Uuids{"GPU-bb20"});
  EXPECT_EQ(select_gpus(cards(), "3,0, 1"), (Uuids{"GPU-cc30", "GPU-aa00", "GPU-bb10"}));
  EXPECT_EQ(select_gpus(with_mig(), "1:2,0"), (Uuids{"MIG-dd12", "GPU-aa00"}));
}

TEST(SelectGpus, by_uuid_or_prefix_ignoring_case) {
  EXPECT_EQ(select_gpus(cards(), "GPU-bb20,gpu-A"), (Uuids{"GPU-bb20", "GPU-aa00"}));
  EXPECT_EQ(select_gpus(with_mig(), "mig-dd12"), Uuids{"MIG-dd12"});
}

TEST(SelectGpus, a_uuid_in_full_is_never_ambiguous) {
  const std::vector<Gpu> gpus = {gpu({0, 1}, "MIG-GPU-aa/1/10"), gpu({0, 0}, "MIG-GPU-aa/1/1")};
  EXPECT_EQ(select_gpus(gpus, "MIG-GPU-aa/1/1"), Uuids{"MIG-GPU-aa/1/1"});
}

TEST(SelectGpus, a_shared_uuid_prefix_is_ambiguous) {
  expect_parts(selection_error(cards(), "GPU-b", ErrorKind::usage), {"'GPU-b'", "GPUs 1,2"});
}

TEST(SelectGpus, a_duplicate_gpu_is_refused) {
  expect_parts(selection_error(cards(), "1,1", ErrorKind::usage), {"'1,1'", "GPU 1", "twice"});
  EXPECT_NE(selection_error(cards(), "3,GPU-cc", ErrorKind::usage), "");
}

TEST(SelectGpus, a_malformed_list_is_refused) {
  for (const char* list : {"", " ", ",", "0,", ",0", "0,,1"}) {
    EXPECT_NE(selection_error(cards(), list, ErrorKind::usage).find("has an empty entry"),
              std::string::npos)
        << list;
  }
  for (const char* list : {"-1", "+1", "1:", ":1", "1:2:3", "0x1", "every", "GPU-", "MIG-", "GPU",
                           "0 1", "bb10", "1.0", "0;1", "\x1b[2J"}) {
    EXPECT_NE(selection_error(cards(), list, ErrorKind::usage).find("is neither an index"),
              std::string::npos)
        << list;
  }
  // Also where an earlier entry names no GPU: the whole list is parsed first.
  EXPECT_NE(selection_error(cards(), "9,x", ErrorKind::usage), "");
}

TEST(SelectGpus, an_unknown_gpu_is_impossible) {
  const auto expect_unknown = [](const std::vector<Gpu>& gpus, std::string_view list,
                                 const std::vector<std::string>& parts) {
    expect_parts(selection_error(gpus, list, ErrorKind::impossible), parts);
  };
  expect_unknown(cards(), "7", {"no GPU 7;", "GPUs 0 to 3"});
  expect_unknown(cards(), "1:0", {"no GPU 1:0;", "GPUs 0 to 3"});
  expect_unknown({cards()[0]}, "GPU-ab", {"no GPU 'GPU-ab';", "only GPU 0"});
  expect_unknown(with_mig(), "1:1", {"no GPU 1:1;", "GPUs 0,1:0,1:2"});
  expect_unknown({with_mig()[0], with_mig()[1]}, "2", {"no GPU 2;", "GPUs 0,1:0"});
  expect_unknown({}, "0", {"no GPU 0;", "has no GPU"});
  expect_unknown(cards(), std::string(30, '9'), {"no GPU 99999999999999999...;", "GPUs 0 to 3"});
}

TEST(SelectGpus, a_card_in_mig_mode_lists_its_instances) {
  expect_parts(selection_error(with_mig(), "1", ErrorKind::impossible),
               {"card 1 ", "MIG mode", "1:0,1:2"});
}

TEST(SelectGpus, an_unusable_gpu_is_refused_with_its_problem) {
  auto gpus = cards();
  gpus[1] = lost_gpu({1, {}}, std::nullopt);
  gpus[2] = lost_gpu({2, {}}, "GPU-bb20");
  const std::string why = " cannot be used: the driver has lost it; reboot";
  EXPECT_EQ(selection_error(gpus, "0,1", ErrorKind::impossible), "GPU 1" + why);
  EXPECT_EQ(selection_error(gpus, "GPU-bb2", ErrorKind::impossible), "GPU 2" + why);
  // The UUID of GPU 1 is unknown, so the user may mean that GPU.
  expect_parts(selection_error(gpus, "GPU-bb10", ErrorKind::impossible),
               {"no GPU 'GPU-bb10';", "GPUs 0 to 3", "GPU 1" + why});
  gpus[1] = gpu({1, {}}, std::nullopt);
  expect_parts(selection_error(gpus, "1", ErrorKind::impossible), {"GPU 1 cannot be used", "UUID"});
}

TEST(SelectGpus, a_gpu_whose_use_cannot_be_read_may_be_waited_for) {
  auto gpus = cards();
  gpus[1].health = Health::unreadable;
  EXPECT_EQ(select_gpus(gpus, "1"), Uuids{"GPU-bb10"});
}

Uuids visible(const std::vector<Gpu>& gpus, std::string_view value) {
  const auto uuids = select_visible_gpus(gpus, value);
  EXPECT_TRUE(uuids && *uuids) << value;
  return uuids && *uuids ? **uuids : Uuids{};
}

std::string visibility_error(const std::vector<Gpu>& gpus, std::string_view value) {
  const auto uuids = select_visible_gpus(gpus, value);
  if (uuids) return "";
  EXPECT_EQ(uuids.error().kind, ErrorKind::impossible);
  return uuids.error().message;
}

TEST(SelectVisibleGpus, unset_is_no_restriction) {
  const auto uuids = select_visible_gpus(cards(), std::nullopt);
  ASSERT_TRUE(uuids);
  EXPECT_FALSE(*uuids);
}

TEST(SelectVisibleGpus, indices_and_uuids) {
  EXPECT_EQ(visible(cards(), "2,0"), (Uuids{"GPU-bb20", "GPU-aa00"}));
  EXPECT_EQ(visible(cards(), "0, 1"), (Uuids{"GPU-aa00", "GPU-bb10"}));
  EXPECT_EQ(visible(cards(), "GPU-cc,GPU-bb1"), (Uuids{"GPU-cc30", "GPU-bb10"}));
  EXPECT_EQ(visible(with_mig(), "MIG-dd12"), Uuids{"MIG-dd12"});
  EXPECT_EQ(visible(with_mig(), "1"), (Uuids{"MIG-dd10", "MIG-dd12"}));
}

TEST(SelectVisibleGpus, the_first_invalid_entry_ends_the_list) {
  for (const char* end : {"-1", "", "9", "x", "GPU-", "GPU-b", "GPU-ff", "1:0", "MIG-GPU-aa/1/0"}) {
    EXPECT_EQ(visible(cards(), std::string("0,2,") + end + ",1"), (Uuids{"GPU-aa00", "GPU-bb20"}))
        << end;
  }
  EXPECT_EQ(visible(cards(), "0,-1,0"), Uuids{"GPU-aa00"});
}

TEST(SelectVisibleGpus, an_empty_restriction_is_impossible) {
  expect_parts(visibility_error(cards(), ""),
               {"CUDA_VISIBLE_DEVICES='' ", "empty", "unset", "GPUs 0 to 3"});
  expect_parts(visibility_error(cards(), "9,0"),
               {"CUDA_VISIBLE_DEVICES='9,0' ", "'9'", "unset", "GPUs 0 to 3"});
  for (const char* value : {"-1", "NoDevFiles", " ", "GPU-b", "99999999999999999999"}) {
    EXPECT_NE(visibility_error(cards(), value), "") << value;
  }
}

TEST(SelectVisibleGpus, a_duplicate_entry_leaves_no_gpu) {
  EXPECT_NE(visibility_error(cards(), "0,1,0").find("names GPU 0 twice"), std::string::npos);
  EXPECT_NE(visibility_error(cards(), "3,GPU-cc").find("names GPU 3 twice"), std::string::npos);
}

TEST(SelectVisibleGpus, a_lost_gpu_is_skipped_without_ending_the_list) {
  auto gpus = cards();
  gpus[1] = lost_gpu({1, {}}, std::nullopt);
  gpus[2] = lost_gpu({2, {}}, "GPU-bb20");
  EXPECT_EQ(visible(gpus, "1,2,3"), Uuids{"GPU-cc30"});
  EXPECT_NE(visibility_error(gpus, "1").find("GPU 1 cannot be used: the driver has lost it"),
            std::string::npos);
}

}  // namespace
}  // namespace berth
