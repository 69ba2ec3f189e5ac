// The calls of the simulated NVML for connections between devices, and to the host.
#include <algorithm>
#include <climits>
#include <unistd.h>

#include "sim/nvml_session.h"

using namespace berth;
using namespace berth::sim;

namespace {

nvml::TopologyLevel level_between(const Card& a, const Card& b) {
  if (!a.pci_switch.empty() && a.pci_switch == b.pci_switch) return nvml::topology_single;
  if (!a.host_bridge.empty() && a.host_bridge == b.host_bridge) {
    const bool switches = !a.pci_switch.empty() && !b.pci_switch.empty();
    return switches ? nvml::topology_multiple : nvml::topology_hostbridge;
  }
  return a.numa_node == b.numa_node ? nvml::topology_node : nvml::topology_system;
}

// Calls `body` with the remote end of a link; returns an error if the card has no such link.
template <class Body>
nvml::Return on_link(const Call& call, nvml::Device device, unsigned link, Body&& body) {
  return on_card(call, device, [&](const Machine& machine, std::size_t card) {
    const auto& links = machine.card(card).nvlinks;
    if (link >= nvml::kMaxNvLinks) return nvml::invalid_argument;
    if (links.empty()) return nvml::not_supported;
    return link < links.size() ? body(links[link]) : nvml::invalid_argument;
  });
}

constexpr std::uint32_t kFarDeviceId = 0x22A310DE;

}  // namespace

BERTH_NVML nvmlDeviceGetTopologyCommonAncestor(nvml::Device first, nvml::Device second,
                                               int* level) {
  return on_unit(BERTH_THIS_CALL, first, [&](const Machine& machine, const Unit& a) {
    return on_unit(call_named("nvmlDeviceGetTopologyCommonAncestor"), second,
                   [&](const Machine&, const Unit& b) {
                     if (a.card == b.card) return store(level, nvml::topology_internal);
                     return store(level, level_between(machine.card(a.card), machine.card(b.card)));
                   });
  });
}

BERTH_NVML nvmlDeviceGetNvLinkState(nvml::Device device, unsigned link, int* active) {
  return on_link(BERTH_THIS_CALL, device, link,
                 [&](const PciAddress&) { return store(active, 1); });
}

BERTH_NVML nvmlDeviceGetNvLinkRemotePciInfo(nvml::Device device, unsigned link,
                                            nvml::PciInfo* pci) {
  return on_link(BERTH_THIS_CALL, device, link, [&](const PciAddress& end) {
    return store_pci(pci, pci_info(end, kFarDeviceId), false);
  });
}
BERTH_NVML nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml::Device device, unsigned link,
                                               nvml::PciInfo* pci) {
  return on_link(BERTH_THIS_CALL, device, link, [&](const PciAddress& end) {
    return store_pci(pci, pci_info(end, kFarDeviceId), true);
  });
}

BERTH_NVML nvmlDeviceGetCpuAffinity(nvml::Device device, unsigned words, unsigned long* set) {
  return on_unit(BERTH_THIS_CALL, device, [&](const Machine& machine, const Unit& unit) {
    if (words == 0 || set == nullptr) return nvml::invalid_argument;
    // The host's CPUs, distributed evenly over the NUMA nodes of the description.
    const auto cpus = static_cast<unsigned>(std::max(1L, ::sysconf(_SC_NPROCESSORS_CONF)));
    unsigned nodes = 1;
    for (const Card& card : machine.server().cards) {
      nodes = std::max(nodes, static_cast<unsigned>(card.numa_node) + 1);
    }
    const auto own = static_cast<unsigned>(machine.card(unit.card).numa_node);
    std::fill(set, set + words, 0UL);
    constexpr unsigned bits = sizeof(unsigned long) * CHAR_BIT;
    for (unsigned cpu = 0; cpu < std::min(cpus, words * bits); ++cpu) {
      if (cpus < nodes || cpu * nodes / cpus == own) set[cpu / bits] |= 1UL << (cpu % bits);
    }
    return nvml::success;
  });
}

BERTH_NVML nvmlDeviceGetMaxPcieLinkGeneration(nvml::Device device, unsigned* generation) {
  return on_card(BERTH_THIS_CALL, device,
                 [&](const Machine&, std::size_t) { return store(generation, 5); });
}
BERTH_NVML nvmlDeviceGetMaxPcieLinkWidth(nvml::Device device, unsigned* width) {
  return on_card(BERTH_THIS_CALL, device,
                 [&](const Machine&, std::size_t) { return store(width, 16); });
}
BERTH_NVML nvmlDeviceGetCurrPcieLinkGeneration(nvml::Device device, unsigned* generation) {
  return on_card(BERTH_THIS_CALL, device, [&](const Machine& machine, std::size_t card) {
    return store(generation, machine.utilization_of(card) > 0 ? 5 : 1);  // slower when idle
  });
}
BERTH_NVML nvmlDeviceGetCurrPcieLinkWidth(nvml::Device device, unsigned* width) {
  return on_card(BERTH_THIS_CALL, device,
                 [&](const Machine&, std::size_t) { return store(width, 16); });
}
BERTH_NVML nvmlDeviceGetPcieThroughput(nvml::Device device, unsigned counter,
                                       unsigned* kib_per_second) {
  return on_card(BERTH_THIS_CALL, device, [&](const Machine& machine, std::size_t card) {
    if (counter > 1) return nvml::invalid_argument;
    return store(kib_per_second, machine.utilization_of(card) * 10240);
  });
}
