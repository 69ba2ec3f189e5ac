// Tests of visible_devices.h, one for each rule of CUDA_VISIBLE_DEVICES.
#include "sim/visible_devices.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace berth::sim {
namespace {

// Four cards without MIG; the last is the fastest.
std::vector<Card> plain_cards() {
  std::vector<Card> cards(4);
  const std::array uuids{
      "GPU-aaaa0000-0000-0000-0000-000000000000", "GPU-aabb0000-0000-0000-0000-000000000001",
      "GPU-cccc0000-0000-0000-0000-000000000002", "GPU-dddd0000-0000-0000-0000-000000000003"};
  for (std::size_t i = 0; i < cards.size(); ++i) {
    cards[i].uuid = uuids[i];
    cards[i].pci.bus = static_cast<std::uint32_t>(i + 1);
  }
  cards[3].speed = 2;
  return cards;
}

// Card 0 has instances 0 and 2 (but not 1), card 1 has MIG mode without instances, card 2 is whole.
std::vector<Card> mig_cards() {
  auto cards = plain_cards();
  cards.resize(3);
  cards[0].mig_mode = true;
  cards[0].instances = {Instance{"1g", "MIG-11110000-0000-0000-0000-000000000000", gib(10)},
                        std::nullopt,
                        Instance{"1g", "MIG-22220000-0000-0000-0000-000000000000", gib(10)}};
  cards[1].mig_mode = true;
  return cards;
}

std::string seen(const std::vector<Card>& cards, std::optional<std::string_view> visible,
                 std::string_view order = "PCI_BUS_ID", std::vector<bool> lost = {}) {
  lost.resize(cards.size());
  std::string text;
  for (const Unit& unit : visible_devices(cards, lost, visible, order)) {
    text += fmt::format("{}{}", text.empty() ? "" : " ", unit.card);
    if (unit.instance) text += fmt::format(":{}", *unit.instance);
  }
  return text;
}

TEST(VisibleDevices, UnsetIsAllAndEmptyIsNone) {
  EXPECT_EQ(seen(plain_cards(), std::nullopt), "0 1 2 3");
  EXPECT_EQ(seen(plain_cards(), ""), "");
  EXPECT_EQ(seen(plain_cards(), " "), "");
}

TEST(VisibleDevices, IndicesInTheOrderGiven) {
  EXPECT_EQ(seen(plain_cards(), "2"), "2");
  EXPECT_EQ(seen(plain_cards(), "3,0"), "3 0");
  EXPECT_EQ(seen(plain_cards(), " 1 , 2 "), "1 2");
}

TEST(VisibleDevices, TheFirstInvalidEntryEndsTheList) {
  EXPECT_EQ(seen(plain_cards(), "0,2,-1,1"), "0 2");
  EXPECT_EQ(seen(plain_cards(), "0,4,1"), "0");
  EXPECT_EQ(seen(plain_cards(), "0,,1"), "0");
  EXPECT_EQ(seen(plain_cards(), "0,"), "0");
  EXPECT_EQ(seen(plain_cards(), "-1"), "");
  EXPECT_EQ(seen(plain_cards(), "1x,0"), "");
  EXPECT_EQ(seen(plain_cards(), "+1"), "");
  EXPECT_EQ(seen(plain_cards(), "99999999999999999999999"), "");
  EXPECT_EQ(seen(plain_cards(), "NoDevFiles"), "");
}

TEST(VisibleDevices, DuplicatesGiveNone) {
  EXPECT_EQ(seen(plain_cards(), "0,0"), "");
  EXPECT_EQ(seen(plain_cards(), "0,1,0"), "");
  EXPECT_EQ(seen(plain_cards(), "0,GPU-aaaa"), "");
  EXPECT_EQ(seen(plain_cards(), "0,-1,0"), "0");
}

TEST(VisibleDevices, UuidsMayBeShortened) {
  EXPECT_EQ(seen(plain_cards(), "GPU-cccc0000-0000-0000-0000-000000000002"), "2");
  EXPECT_EQ(seen(plain_cards(), "GPU-c"), "2");
  EXPECT_EQ(seen(plain_cards(), "GPU-aab,GPU-d"), "1 3");
  EXPECT_EQ(seen(plain_cards(), "GPU-aa"), "") << "ambiguous";
  EXPECT_EQ(seen(plain_cards(), "2,GPU-aa,1"), "2");
  EXPECT_EQ(seen(plain_cards(), "GPU-"), "");
  EXPECT_EQ(seen(plain_cards(), "GPU-ffff"), "");
  EXPECT_EQ(seen(plain_cards(), "GPU-cccc0000-0000-0000-0000-0000000000021"), "");
}

TEST(VisibleDevices, FastestFirstUnlessPciOrderIsAsked) {
  EXPECT_EQ(seen(plain_cards(), std::nullopt, "FASTEST_FIRST"), "3 0 1 2");
  EXPECT_EQ(seen(plain_cards(), std::nullopt, ""), "3 0 1 2");
  EXPECT_EQ(seen(plain_cards(), "0,1", ""), "3 0");
  EXPECT_EQ(seen(plain_cards(), "0", "PCI_BUS_ID"), "0");
}

TEST(VisibleDevices, OneInstanceAndThenNoWholeCard) {
  const auto cards = mig_cards();
  EXPECT_EQ(seen(cards, "MIG-22220000-0000-0000-0000-000000000000"), "0:2");
  EXPECT_EQ(seen(cards, "MIG-1"), "0:0");
  EXPECT_EQ(seen(cards, "MIG-"), "") << "ambiguous";
  EXPECT_EQ(seen(cards, "MIG-2,MIG-1"), "0:2");
  EXPECT_EQ(seen(cards, "2,MIG-1"), "0:0");
  EXPECT_EQ(seen(cards, std::nullopt), "0:0");
  EXPECT_EQ(seen(cards, "2"), "2");
}

TEST(VisibleDevices, OlderNamesOfInstances) {
  const auto cards = mig_cards();
  EXPECT_EQ(seen(cards, "MIG-GPU-aaaa0000-0000-0000-0000-000000000000/3/0"), "0:2");
  EXPECT_EQ(seen(cards, "MIG-GPU-aaaa0000-0000-0000-0000-000000000000/2/0"), "") << "the hole";
  EXPECT_EQ(seen(cards, "MIG-GPU-aaaa0000-0000-0000-0000-000000000000/1/1"), "");
}

TEST(VisibleDevices, ACardInMigModeIsItsFirstInstance) {
  const auto cards = mig_cards();
  EXPECT_EQ(seen(cards, "0"), "0:0");
  EXPECT_EQ(seen(cards, "GPU-aaaa"), "0:0");
  EXPECT_EQ(seen(cards, "1"), "") << "MIG mode without instances cannot be used";
  EXPECT_EQ(seen(cards, "2,1"), "2");
}

TEST(VisibleDevices, ALostCardDoesNotExist) {
  EXPECT_EQ(seen(plain_cards(), std::nullopt, "PCI_BUS_ID", {false, true}), "0 2 3");
  EXPECT_EQ(seen(plain_cards(), "1", "PCI_BUS_ID", {false, true}), "2");
  EXPECT_EQ(seen(plain_cards(), "GPU-aabb", "PCI_BUS_ID", {false, true}), "");
}

}  // namespace
}  // namespace berth::sim
