// Reading of the topology; see nvml_topology.h.
#include "devices/nvml_topology.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace berth::nvml {
namespace {

struct Card {
  unsigned index = 0;
  Device device = nullptr;
  std::string bus_id;
  std::map<std::string, unsigned> links;  // active NVLinks by the PCI address of the other end
  unsigned switch_links = 0;              // those of them that end at an NVSwitch
};

std::string bus_id_of(const PciInfo& pci) {
  const auto* end = std::find(std::begin(pci.bus_id), std::end(pci.bus_id), '\0');
  return {std::begin(pci.bus_id), end};
}

void read_links(const Api& api, Card& card) {
  if (api.nvlink_state == nullptr || api.nvlink_remote_pci == nullptr) return;
  for (unsigned link = 0; link < kMaxNvLinks; ++link) {
    int active = 0;
    // Past the card's last link the driver answers "invalid" or "not supported".
    if (api.nvlink_state(card.device, link, &active) != success) break;
    PciInfo remote{};
    if (active == 1 && api.nvlink_remote_pci(card.device, link, &remote) == success) {
      ++card.links[bus_id_of(remote)];
    }
  }
}

std::vector<Card> read_cards(const Api& api) {
  std::vector<Card> cards;
  unsigned count = 0;
  if (api.device_count(&count) != success) return cards;
  for (unsigned i = 0; i < count; ++i) {
    Card card;
    card.index = i;
    if (api.device_by_index(i, &card.device) != success || card.device == nullptr) continue;
    PciInfo pci{};
    if (api.pci_info != nullptr && api.pci_info(card.device, &pci) == success) {
      card.bus_id = bus_id_of(pci);
    }
    read_links(api, card);
    cards.push_back(std::move(card));
  }
  // A link whose other end is no card ends at a switch, which connects all cards behind it.
  for (Card& card : cards) {
    for (const auto& [bus_id, links] : card.links) {
      const bool is_card = std::any_of(cards.begin(), cards.end(),
                                       [&id = bus_id](const Card& c) { return c.bus_id == id; });
      if (!is_card) card.switch_links += links;
    }
  }
  return cards;
}

std::optional<Proximity> proximity_of(const Api& api, Device a, Device b) {
  int level = 0;
  if (api.common_ancestor == nullptr || api.common_ancestor(a, b, &level) != success) {
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

Topology read_topology(const Api& api) {
  Topology topology;
  const std::vector<Card> cards = read_cards(api);
  for (std::size_t i = 0; i < cards.size(); ++i) {
    for (std::size_t j = i + 1; j < cards.size(); ++j) {
      const Card& a = cards[i];
      const Card& b = cards[j];
      const auto direct = a.links.find(b.bus_id);
      Connection connection;
      connection.a = {a.index, std::nullopt};
      connection.b = {b.index, std::nullopt};
      connection.proximity = proximity_of(api, a.device, b.device);
      connection.nvlinks =
          std::min(a.switch_links, b.switch_links) + (direct == a.links.end() ? 0 : direct->second);
      topology.connections.push_back(connection);
    }
  }
  return topology;
}

}  // namespace berth::nvml
