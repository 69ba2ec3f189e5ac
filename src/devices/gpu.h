// The state of this host's GPUs, as the driver reports it: plain data without behaviour.
//
// A value that the driver does not report is std::nullopt, never zero: unknown is not the same as
// idle, empty or free.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/quantity.h"

namespace berth {

// The number of a GPU that users see: "2" for card 2, "2:1" for MIG instance 1 of card 2. The
// card's number is the driver's (PCI order). It does not identify the GPU: it may change with a
// reboot.
struct GpuIndex {
  unsigned card = 0;
  std::optional<unsigned> instance;
  auto operator<=>(const GpuIndex&) const = default;
};

inline std::string to_string(const GpuIndex& index) {
  std::string text = std::to_string(index.card);
  if (index.instance) text.append(1, ':').append(std::to_string(*index.instance));
  return text;
}

// `graphics` is a process that only draws (Xorg); a process that does both is `compute`.
enum class ProcessKind : std::uint8_t { compute, graphics };

// A process on a GPU, or one of its ancestors.
struct Ancestor {
  std::int64_t pid = 0;
  std::optional<uid_t> uid;  // the effective one
  std::string name;          // chosen by the process itself; empty: hidden by hidepid
  bool is_root = false;      // real, effective and saved uid are 0, so it is not a setuid program
};

struct GpuProcess {
  std::int64_t pid = 0;  // in the host's PID namespace, even if Berth runs in a container
  ProcessKind kind = ProcessKind::compute;
  std::optional<Bytes> memory;
  std::optional<std::string> name;
  std::optional<uid_t> uid;  // the real one
  // The process itself, its parent, and so on, as far as /proc shows them, at most 64. Empty in a
  // container, where the driver's PIDs cannot be looked up.
  std::vector<Ancestor> lineage{};
  // BERTH_LEASE in the process's environment; empty: not set there. nullopt: the environment cannot
  // be read, because it belongs to another user or the process is stuck.
  std::optional<std::string> lease{};
  // The framework that takes most of a GPU's memory by default ("JAX"), if the process has loaded
  // one and uses most of the memory. Set only in GpuSample.
  std::string framework{};
};

enum class Health : std::uint8_t {
  ok,
  lost,        // the driver reports that the GPU is gone or needs a reset
  unreadable,  // the GPU exists, but the driver does not report whether it is busy
};

enum class ComputeMode : std::uint8_t { shared, exclusive_process, prohibited };

struct Gpu {
  GpuIndex index;
  Health health = Health::ok;
  std::string problem;  // for the user, if health is not ok
  std::optional<std::string> uuid;
  std::optional<std::string> name;
  std::optional<Bytes> memory_total;
  std::optional<Bytes> memory_used;
  // memory_used includes the driver's reserved memory, as the old memory call reports it.
  bool memory_used_counts_reserved = false;
  // The GPU has no memory of its own (GB10): memory_total and memory_used are the host's.
  bool memory_is_hosts = false;
  std::optional<unsigned> utilization_pct;
  std::optional<unsigned> memory_utilization_pct;
  std::optional<unsigned> temperature_c;
  std::optional<double> power_w;
  std::optional<unsigned> performance_state;
  std::optional<ComputeMode> compute_mode;
  std::optional<bool> display_active;
  bool mig_without_instances = false;  // MIG mode is on, but there is no instance
  std::vector<GpuProcess> processes;   // complete if health is ok
};

// All GPUs at one moment, ordered by index.
struct Snapshot {
  std::optional<std::string> driver_version;
  std::vector<Gpu> gpus;
};

// The use of one GPU at one moment. Cheaper than a snapshot: it can be read several times a second.
struct GpuSample {
  std::string uuid;
  std::optional<Bytes> memory_total;
  std::optional<Bytes> memory_used;
  std::optional<unsigned> utilization_pct;
  std::optional<double> power_w;
  std::vector<GpuProcess> processes;
  bool complete = false;         // `processes` contains all processes
  bool memory_is_hosts = false;  // as in Gpu
  bool lost = false;             // the driver has lost contact with the GPU
};

// The closest component that the PCIe paths of two cards share, closest first.
enum class Proximity : std::uint8_t {
  board,
  pcie_switch,
  pcie_switches,
  host_bridge,
  numa_node,
  system
};

struct Connection {
  GpuIndex a;
  GpuIndex b;
  std::optional<Proximity> proximity;
  std::optional<unsigned> nvlinks;  // active links between the two, direct or through NVSwitches
};

// Each pair of cards once (a before b). Pairs with a lost card are present without values. MIG
// instances have no connections of their own.
struct Topology {
  std::vector<Connection> connections;
};

}  // namespace berth
