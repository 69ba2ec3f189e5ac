// The matrix of `berth status --topology`; see status_text.h. It uses the words of nvidia-smi.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>
#include <utility>

#include "cli/output/status_text.h"

namespace berth {
namespace {

std::string_view proximity_text(std::optional<Proximity> proximity) {
  if (!proximity) return "-";
  switch (*proximity) {
    case Proximity::board:
      return "BOARD";
    case Proximity::pcie_switch:
      return "PIX";
    case Proximity::pcie_switches:
      return "PXB";
    case Proximity::host_bridge:
      return "PHB";
    case Proximity::numa_node:
      return "NODE";
    case Proximity::system:
      return "SYS";
  }
  return "-";
}

std::string connection_text(const Connection& connection) {
  if (connection.nvlinks.value_or(0) > 0) return fmt::format("NV{}", *connection.nvlinks);
  return std::string(proximity_text(connection.proximity));
}

}  // namespace

std::string topology_text(const Topology& topology, const Terminal& terminal) {
  std::set<GpuIndex> cards;
  std::map<std::pair<GpuIndex, GpuIndex>, std::string> cells;
  for (const Connection& connection : topology.connections) {
    cards.insert(connection.a);
    cards.insert(connection.b);
    cells[{connection.a, connection.b}] = cells[{connection.b, connection.a}] =
        connection_text(connection);
  }
  if (cards.empty()) return "There are no connections: this host has fewer than two cards.\n";
  constexpr std::size_t kCellWidth = 6;
  std::string out = std::string(kCellWidth, ' ');
  for (const GpuIndex& card : cards)
    out += align_right(fmt::format("GPU{}", to_string(card)), kCellWidth);
  out += "\n";
  for (const GpuIndex& row : cards) {
    out += align_left(fmt::format("GPU{}", to_string(row)), kCellWidth);
    for (const GpuIndex& column : cards) {
      const auto cell = cells.find({row, column});
      const bool linked = cell != cells.end() && cell->second.starts_with("NV");
      const std::string text = align_right(cell == cells.end() ? "X" : cell->second, kCellWidth);
      out += terminal.paint(linked ? Style::good : Style::plain, text);
    }
    out += "\n";
  }
  return out +
         "\nNVn: n NVLinks. Otherwise the nearest part that two cards share: BOARD the same "
         "board,\n"
         "PIX one PCIe switch, PXB several PCIe switches, PHB a PCIe host bridge, NODE a NUMA "
         "node,\n"
         "SYS different NUMA nodes.\n";
}

}  // namespace berth
