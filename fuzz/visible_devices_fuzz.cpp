// Fuzzes CUDA_VISIBLE_DEVICES and --gpu, on a host with 2 cards, 2 MIG instances and a lost card.
#include <algorithm>

#include "fuzz/fuzz.h"
#include "lease/gpu_list.h"
#include "sim/visible_devices.h"

namespace berth {
namespace {

Gpu gpu(GpuIndex index, const char* uuid, Health health = Health::ok) {
  Gpu one;
  one.index = index;
  one.uuid = uuid;
  one.health = health;
  return one;
}

const std::vector<Gpu>& host() {
  static const std::vector<Gpu> gpus{
      gpu({0, {}}, "GPU-0a000000-0000-0000-0000-000000000000"),
      gpu({1, {}}, "GPU-0b000000-0000-0000-0000-000000000000"),
      gpu({2, 0}, "MIG-0c000000-0000-0000-0000-000000000000"),
      gpu({2, 1}, "MIG-0d000000-0000-0000-0000-000000000000"),
      gpu({3, {}}, "GPU-0e000000-0000-0000-0000-000000000000", Health::lost)};
  return gpus;
}

void check_uuids(std::vector<std::string> uuids) {
  check(!uuids.empty() && uuids.size() <= host().size(), "there is a GPU to choose from");
  for (const std::string& uuid : uuids) {
    check(std::any_of(host().begin(), host().end(),
                      [&](const Gpu& one) { return one.uuid == uuid && one.health == Health::ok; }),
          "each UUID is that of a usable GPU");
  }
  std::sort(uuids.begin(), uuids.end());
  check(std::adjacent_find(uuids.begin(), uuids.end()) == uuids.end(), "no UUID is listed twice");
}

// The same list, as the simulated CUDA driver reads it.
void check_simulated(std::string_view list) {
  std::vector<sim::Card> cards(3);
  for (std::size_t i = 0; i < cards.size(); ++i) cards[i].uuid = host()[i].uuid.value();
  cards[2].mig_mode = true;
  cards[2].instances = {sim::Instance{"1g.10gb", host()[2].uuid.value(), gib(10)}, std::nullopt};
  const auto units = sim::visible_devices(cards, {false, true, false}, list, "PCI_BUS_ID");
  check(units.size() <= cards.size(), "CUDA shows no more devices than cards");
  for (const sim::Unit& unit : units)
    check(unit.card == 0 || unit.card == 2, "no visible device is lost");
}

}  // namespace

void fuzz(std::string_view input) {
  const auto visible = select_visible_gpus(host(), input);
  if (visible) {
    check(visible->has_value(), "a variable that is set results in a list");
    check_uuids(**visible);
  } else {
    check(is_printable(visible.error().message), "the error is printable");
    check(visible.error().message.size() < 2000, "the error is short");
  }
  const auto selected = select_gpus(host(), input);
  if (selected) {
    check_uuids(*selected);
  } else {
    check(is_printable(selected.error().message), "the error is printable");
    check(selected.error().message.size() < 2000, "the error is short");
  }
  check_simulated(input);
}

}  // namespace berth
