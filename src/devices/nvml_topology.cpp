// Reads the topology through NVML; see nvml_topology.h.
#include "devices/nvml_topology.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace berth::nvml {
namespace {

struct Card {
  unsigned index = 0;
  Device device = nullptr;  // null if it cannot be opened
  std::string bus_id;
  bool links_known = false;
  std::map<std::string, unsigned> links;  // active NVLinks by the PCI address of the other end
  unsigned switch_links = 0;              // the links among them that end at an NVSwitch
};

std::string bus_id_of(const PciInfo& pci) {
  const auto* end = std::find(std::begin(pci.bus_id), std::end(pci.bus_id), '\0');
  return {std::begin(pci.bus_id), end};
}

// False if the driver does not report which links there are.
bool read_links(const Api& api, Card& card) {
  if (api.nvlink_state == nullptr || api.nvlink_remote_pci == nullptr) return true;
  for (unsigned link = 0; link < kMaxNvLinks; ++link) {
    int active = 0;
    const Return answer = api.nvlink_state(card.device, link, &active);
    // The driver returns one of these for numbers after the card's last link.
    if (answer == invalid_argument || answer == not_supported) return true;
    if (answer != success) return false;
    if (active != 1) continue;
    PciInfo remote{};
    if (api.nvlink_remote_pci(card.device, link, &remote) != success) return false;
    ++card.links[bus_id_of(remote)];
  }
  return true;
}

std::vector<Card> read_cards(const Api& api, unsigned count) {
  std::vector<Card> cards(count);
  for (unsigned i = 0; i < count; ++i) {
    Card& card = cards[i];
    card.index = i;
    if (api.device_by_index(i, &card.device) != success) card.device = nullptr;
    if (card.device == nullptr) continue;
    PciInfo pci{};
    if (api.pci_info != nullptr && api.pci_info(card.device, &pci) == success) {
      card.bus_id = bus_id_of(pci);
    }
    card.links_known = read_links(api, card);
  }
  // A link whose other end is not a card ends at a switch, which connects all cards attached to it.
  for (Card& card : cards) {
    for (const auto& [bus_id, links] : card.links) {
      const bool is_card = std::any_of(cards.begin(), cards.end(),
                                       [&id = bus_id](const Card& c) { return c.bus_id == id; });
      if (!is_card) card.switch_links += links;
    }
  }
  return cards;
}

std::optional<unsigned> links_between(const Card& a, const Card& b) {
  if (!a.links_known || !b.links_known) return std::nullopt;
  const auto direct = a.links.find(b.bus_id);
  return std::min(a.switch_links, b.switch_links) + (direct == a.links.end() ? 0 : direct->second);
}

std::optional<Proximity> proximity_of(const Api& api, Device a, Device b) {
  int level = 0;
  if (a == nullptr || b == nullptr || api.common_ancestor == nullptr ||
      api.common_ancestor(a, b, &level) != success) {
    return std::nullopt;
  }
  switch (level) {
    case topology_internal:
      return Proximity::board;
    case topology_single:
      return Proximity::pcie_switch;
    case topology_multiple:
      return Proximity::pcie_switches;
    case topology_hostbridge:
      return Proximity::host_bridge;
    case topology_node:
      return Proximity::numa_node;
    case topology_system:
      return Proximity::system;
    default:
      return std::nullopt;
  }
}

}  // namespace

Topology read_topology(const Api& api, unsigned card_count) {
  Topology topology;
  const std::vector<Card> cards = read_cards(api, card_count);
  for (std::size_t i = 0; i < cards.size(); ++i) {
    for (std::size_t j = i + 1; j < cards.size(); ++j) {
      const Card& a = cards[i];
      const Card& b = cards[j];
      topology.connections.push_back({{a.index, std::nullopt},
                                      {b.index, std::nullopt},
                                      proximity_of(api, a.device, b.device),
                                      links_between(a, b)});
    }
  }
  return topology;
}

}  // namespace berth::nvml
