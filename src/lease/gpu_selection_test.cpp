// Lists of GPUs as people write them: what they mean, and what is said of wrong ones.
#include "lease/gpu_selection.h"

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

Gpu lost(GpuIndex index, std::optional<std::string> uuid) {
  Gpu lost = gpu(index, std::move(uuid));
  lost.health = Health::lost;
  lost.problem = "the driver has lost it; reboot";
  return lost;
}

// Four cards, of which 1 and 2 have UUIDs that start alike.
std::vector<Gpu> cards() {
  return {gpu({0, {}}, "GPU-aa00"), gpu({1, {}}, "GPU-bb10"), gpu({2, {}}, "GPU-bb20"),
          gpu({3, {}}, "GPU-cc30")};
}

// A card, and one in MIG mode with an instance destroyed in between.
std::vector<Gpu> with_mig() {
  return {gpu({0, {}}, "GPU-aa00"), gpu({1, 0}, "MIG-dd10"), gpu({1, 2}, "MIG-dd12")};
}

std::string complaint(const std::vector<Gpu>& gpus, std::string_view list, ErrorKind kind) {
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

TEST(SelectGpus, by_uuid_or_its_start_in_any_case) {
  EXPECT_EQ(select_gpus(cards(), "GPU-bb20,gpu-A"), (Uuids{"GPU-bb20", "GPU-aa00"}));
  EXPECT_EQ(select_gpus(with_mig(), "mig-dd12"), Uuids{"MIG-dd12"});
}

TEST(SelectGpus, a_uuid_in_full_is_never_ambiguous) {
  const std::vector<Gpu> gpus = {gpu({0, 1}, "MIG-GPU-aa/1/10"), gpu({0, 0}, "MIG-GPU-aa/1/1")};
  EXPECT_EQ(select_gpus(gpus, "MIG-GPU-aa/1/1"), Uuids{"MIG-GPU-aa/1/1"});
}

TEST(SelectGpus, a_start_that_several_have_is_ambiguous) {
  EXPECT_EQ(complaint(cards(), "GPU-b", ErrorKind::usage),
            "'GPU-b' could be any of the GPUs 1,2; write more of it");
}

TEST(SelectGpus, twice_the_same_is_refused) {
  EXPECT_EQ(complaint(cards(), "1,1", ErrorKind::usage),
            "'1,1' names GPU 1 twice; name each GPU once");
  EXPECT_NE(complaint(cards(), "3,GPU-cc", ErrorKind::usage), "");
}

TEST(SelectGpus, a_malformed_list_is_refused) {
  for (const char* list : {"", " ", ",", "0,", ",0", "0,,1"}) {
    EXPECT_NE(complaint(cards(), list, ErrorKind::usage).find("has an empty entry"),
              std::string::npos)
        << list;
  }
  for (const char* list : {"-1", "+1", "1:", ":1", "1:2:3", "0x1", "all", "GPU-", "MIG-", "GPU",
                           "0 1", "bb10", "1.0", "0;1", "\x1b[2J"}) {
    EXPECT_NE(complaint(cards(), list, ErrorKind::usage).find("is neither an index"),
              std::string::npos)
        << list;
  }
  // Also where an entry before it names no GPU: what is wrong in itself comes first.
  EXPECT_NE(complaint(cards(), "9,x", ErrorKind::usage), "");
}

TEST(SelectGpus, what_is_not_there_is_impossible) {
  EXPECT_EQ(complaint(cards(), "7", ErrorKind::impossible),
            "there is no GPU 7; this host has GPUs 0 to 3");
  EXPECT_EQ(complaint(cards(), "1:0", ErrorKind::impossible),
            "there is no GPU 1:0; this host has GPUs 0 to 3");
  EXPECT_EQ(complaint({cards()[0]}, "GPU-ab", ErrorKind::impossible),
            "there is no GPU 'GPU-ab'; this host has only GPU 0");
  EXPECT_EQ(complaint(with_mig(), "1:1", ErrorKind::impossible),
            "there is no GPU 1:1; this host has GPUs 0,1:0,1:2");
  EXPECT_EQ(complaint({with_mig()[0], with_mig()[1]}, "2", ErrorKind::impossible),
            "there is no GPU 2; this host has GPUs 0,1:0");
  EXPECT_EQ(complaint({}, "0", ErrorKind::impossible), "there is no GPU 0; this host has no GPU");
  EXPECT_EQ(complaint(cards(), std::string(30, '9'), ErrorKind::impossible),
            "there is no GPU 99999999999999999...; this host has GPUs 0 to 3");
}

TEST(SelectGpus, of_a_card_in_mig_mode_the_instances_are_named) {
  EXPECT_EQ(complaint(with_mig(), "1", ErrorKind::impossible),
            "card 1 is in MIG mode, and its instances are the GPUs; name one or more of 1:0,1:2");
}

TEST(SelectGpus, a_gpu_that_cannot_be_used_says_why) {
  auto gpus = cards();
  gpus[1] = lost({1, {}}, std::nullopt);
  gpus[2] = lost({2, {}}, "GPU-bb20");
  const std::string why = " cannot be used: the driver has lost it; reboot";
  EXPECT_EQ(complaint(gpus, "0,1", ErrorKind::impossible), "GPU 1" + why);
  EXPECT_EQ(complaint(gpus, "GPU-bb2", ErrorKind::impossible), "GPU 2" + why);
  // Its UUID is not known any more, so it may be the one that is meant.
  EXPECT_EQ(complaint(gpus, "GPU-bb10", ErrorKind::impossible),
            "there is no GPU 'GPU-bb10'; this host has GPUs 0 to 3; GPU 1" + why);
  gpus[1] = gpu({1, {}}, std::nullopt);
  EXPECT_EQ(complaint(gpus, "1", ErrorKind::impossible),
            "GPU 1 cannot be used: the driver does not say its UUID");
}

TEST(SelectGpus, a_gpu_whose_use_cannot_be_read_may_be_waited_for) {
  auto gpus = cards();
  gpus[1].health = Health::unreadable;
  EXPECT_EQ(select_gpus(gpus, "1"), Uuids{"GPU-bb10"});
}

Uuids visible(const std::vector<Gpu>& gpus, std::string_view value) {
  const auto uuids = visible_gpus(gpus, value);
  EXPECT_TRUE(uuids && *uuids) << value;
  return uuids && *uuids ? **uuids : Uuids{};
}

std::string blindness(const std::vector<Gpu>& gpus, std::string_view value) {
  const auto uuids = visible_gpus(gpus, value);
  if (uuids) return "";
  EXPECT_EQ(uuids.error().kind, ErrorKind::impossible);
  return uuids.error().message;
}

TEST(VisibleGpus, unset_is_no_restriction) {
  const auto uuids = visible_gpus(cards(), std::nullopt);
  ASSERT_TRUE(uuids);
  EXPECT_FALSE(*uuids);
}

TEST(VisibleGpus, indices_and_uuids) {
  EXPECT_EQ(visible(cards(), "2,0"), (Uuids{"GPU-bb20", "GPU-aa00"}));
  EXPECT_EQ(visible(cards(), "0, 1"), (Uuids{"GPU-aa00", "GPU-bb10"}));
  EXPECT_EQ(visible(cards(), "GPU-cc,GPU-bb1"), (Uuids{"GPU-cc30", "GPU-bb10"}));
  EXPECT_EQ(visible(with_mig(), "MIG-dd12"), Uuids{"MIG-dd12"});
  EXPECT_EQ(visible(with_mig(), "1"), (Uuids{"MIG-dd10", "MIG-dd12"}));
}

TEST(VisibleGpus, the_first_invalid_entry_ends_the_list) {
  for (const char* end : {"-1", "", "9", "x", "GPU-", "GPU-b", "GPU-ff", "1:0", "MIG-GPU-aa/1/0"}) {
    EXPECT_EQ(visible(cards(), std::string("0,2,") + end + ",1"), (Uuids{"GPU-aa00", "GPU-bb20"}))
        << end;
  }
  EXPECT_EQ(visible(cards(), "0,-1,0"), Uuids{"GPU-aa00"});
}

TEST(VisibleGpus, a_restriction_to_nothing_is_impossible) {
  EXPECT_EQ(blindness(cards(), ""),
            "CUDA_VISIBLE_DEVICES='' leaves no GPU to choose from: it is empty; unset the "
            "variable, or correct it (this host has GPUs 0 to 3)");
  EXPECT_EQ(blindness(cards(), "9,0"),
            "CUDA_VISIBLE_DEVICES='9,0' leaves no GPU to choose from: '9' is no GPU of this host; "
            "unset the variable, or correct it (this host has GPUs 0 to 3)");
  for (const char* value : {"-1", "NoDevFiles", " ", "GPU-b", "99999999999999999999"}) {
    EXPECT_NE(blindness(cards(), value), "") << value;
  }
}

TEST(VisibleGpus, duplicates_give_none) {
  EXPECT_NE(blindness(cards(), "0,1,0").find("it names GPU 0 twice"), std::string::npos);
  EXPECT_NE(blindness(cards(), "3,GPU-cc").find("it names GPU 3 twice"), std::string::npos);
}

TEST(VisibleGpus, a_lost_gpu_is_left_out_and_ends_nothing) {
  auto gpus = cards();
  gpus[1] = lost({1, {}}, std::nullopt);
  gpus[2] = lost({2, {}}, "GPU-bb20");
  EXPECT_EQ(visible(gpus, "1,2,3"), Uuids{"GPU-cc30"});
  EXPECT_NE(blindness(gpus, "1").find("GPU 1 cannot be used: the driver has lost it"),
            std::string::npos);
}

}  // namespace
}  // namespace berth
