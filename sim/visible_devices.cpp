// Interprets CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER; see visible_devices.h.
#include "sim/visible_devices.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/text.h"

namespace berth::sim {
namespace {

std::string_view trim(std::string_view text) {
  const auto start = text.find_first_not_of(" \t");
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(" \t") - start + 1);
}

class DeviceEnumeration {
 public:
  DeviceEnumeration(const std::vector<Card>& cards, std::vector<std::size_t> order)
      : cards_(cards), order_(std::move(order)) {}

  std::vector<Unit> all() const {
    std::vector<Unit> units;
    for (const std::size_t card : order_) {
      if (const auto unit = unit_of(card)) units.push_back(*unit);
    }
    return units;
  }

  // The unit of one entry of CUDA_VISIBLE_DEVICES; nullopt: the entry is invalid.
  std::optional<Unit> find_unit(std::string_view entry) const {
    if (entry.starts_with("GPU-")) return by_card_uuid(entry);
    if (entry.starts_with("MIG-")) return by_instance_uuid(entry);
    const auto index = parse_integer<std::size_t>(entry);
    if (!index || *index >= order_.size()) return {};
    return unit_of(order_[*index]);
  }

 private:
  // The card itself, or in MIG mode its first instance; nullopt: there is no instance.
  std::optional<Unit> unit_of(std::size_t card) const {
    if (!cards_[card].mig_mode) return Unit{card, {}};
    const auto& instances = cards_[card].instances;
    for (std::size_t i = 0; i < instances.size(); ++i) {
      if (instances[i]) return Unit{card, i};
    }
    return {};
  }

  std::optional<Unit> by_card_uuid(std::string_view prefix) const {
    std::optional<std::size_t> found;
    for (const std::size_t card : order_) {
      if (!cards_[card].uuid.starts_with(prefix)) continue;
      if (found) return {};  // ambiguous
      found = card;
    }
    return found ? unit_of(*found) : std::nullopt;
  }

  std::optional<Unit> by_instance_uuid(std::string_view entry) const {
    std::optional<Unit> found;
    for (const std::size_t card : order_) {
      for (std::size_t i = 0; i < cards_[card].instances.size(); ++i) {
        const auto& instance = cards_[card].instances[i];
        if (!instance) continue;
        if (entry == fmt::format("MIG-{}/{}/0", cards_[card].uuid, i + 1)) return Unit{card, i};
        if (!instance->uuid.starts_with(entry)) continue;
        if (found) return {};
        found = Unit{card, i};
      }
    }
    return found;
  }

  const std::vector<Card>& cards_;
  std::vector<std::size_t> order_;  // CUDA's index -> card
};

}  // namespace

std::vector<Unit> visible_devices(const std::vector<Card>& cards, const std::vector<bool>& lost,
                                  std::optional<std::string_view> visible,
                                  std::optional<std::string_view> order) {
  std::vector<std::size_t> sequence;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    if (!lost[i]) sequence.push_back(i);
  }
  if (order != "PCI_BUS_ID") {
    std::stable_sort(sequence.begin(), sequence.end(),
                     [&](std::size_t a, std::size_t b) { return cards[a].speed > cards[b].speed; });
  }
  const DeviceEnumeration enumeration(cards, std::move(sequence));
  std::vector<Unit> units;
  if (!visible) {
    units = enumeration.all();
  } else {
    for (std::size_t start = 0; start <= visible->size();) {
      const std::size_t end = std::min(visible->find(',', start), visible->size());
      const auto unit = enumeration.find_unit(trim(visible->substr(start, end - start)));
      if (!unit) break;  // the first invalid entry ends the list
      if (std::find(units.begin(), units.end(), *unit) != units.end()) return {};
      units.push_back(*unit);
      start = end + 1;
    }
  }
  // A program that uses a MIG instance cannot use any other device.
  const auto instance = std::find_if(units.begin(), units.end(),
                                     [](const Unit& unit) { return unit.instance.has_value(); });
  if (instance != units.end()) return {*instance};
  return units;
}

}  // namespace berth::sim
