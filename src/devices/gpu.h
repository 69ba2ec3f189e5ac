// What a driver says of the GPUs of this host: plain data, no behaviour.
//
// A value that the driver does not give is std::nullopt, never zero: unknown is not idle, not empty
// and not free.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/quantity.h"

namespace berth {

// A GPU's number for people: "2" for a card, "2:1" for the MIG instance 1 of card 2. The card's
// number is the driver's (PCI order). Not an identity: it may change with the next reboot.
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

// Graphics alone is a display (Xorg and the like); a process that computes as well is compute.
enum class ProcessKind : std::uint8_t { compute, graphics };

// A process on a GPU, or one of its ancestors.
struct Ancestor {
  std::int64_t pid = 0;
  std::optional<uid_t> uid;  // the effective one
  std::string name;          // chosen by the process itself; empty: hidden from us (hidepid)
  bool is_root = false;      // its real, effective and saved uids are 0: no setuid program
};

struct GpuProcess {
  std::int64_t pid = 0;  // the host's number, also when berth runs in a container
  ProcessKind kind = ProcessKind::compute;
  std::optional<Bytes> memory;
  std::optional<std::string> name;
  std::optional<uid_t> uid;  // the real one
  // The process itself, its parent, and so on, as far as they can be seen, at most 64. Empty in a
  // container, where the driver's PIDs mean nothing.
  std::vector<Ancestor> lineage{};
  // BERTH_LEASE in its environment, empty if it is not set. Absent if the environment cannot be
  // read: it is another user's, or the process is stuck.
  std::optional<std::string> lease{};
  // A framework that takes most of a GPU's memory by default ("JAX"), if the process has loaded one
  // and uses most of the memory. Only in GpuSample.
  std::string framework{};
};

enum class Health : std::uint8_t {
  ok,
  lost,        // the driver says that the GPU is gone, or needs a reset
  unreadable,  // it is there, and the driver does not let us see whether it is busy
};

enum class ComputeMode : std::uint8_t { shared, exclusive_process, prohibited };

struct Gpu {
  GpuIndex index;
  Health health = Health::ok;
  std::string problem;  // in words, when health is not ok
  std::optional<std::string> uuid;
  std::optional<std::string> name;
  std::optional<Bytes> memory_total;
  std::optional<Bytes> memory_used;
  bool memory_used_counts_reserved = false;  // the old memory call: the driver's own share is in it
  bool memory_is_hosts = false;  // the GPU has no memory of its own (GB10): these are the host's
  std::optional<unsigned> utilization_pct;
  std::optional<unsigned> memory_utilization_pct;
  std::optional<unsigned> temperature_c;
  std::optional<double> power_w;
  std::optional<unsigned> performance_state;
  std::optional<ComputeMode> compute_mode;
  std::optional<bool> display_active;
  bool mig_without_instances = false;  // MIG mode is on, and there is no instance
  std::vector<GpuProcess> processes;   // complete if health is ok
};

// Everything of one moment, in the order of the indices.
struct Snapshot {
  std::optional<std::string> driver_version;
  std::vector<Gpu> gpus;
};

// What one GPU is used for at a moment, and nothing else: cheap enough to be asked several times a
// second.
struct GpuSample {
  std::string uuid;
  std::optional<Bytes> memory_total;
  std::optional<Bytes> memory_used;
  std::optional<unsigned> utilization_pct;
  std::vector<GpuProcess> processes;
  bool complete = false;         // these are all processes
  bool memory_is_hosts = false;  // as in Gpu
};

// The nearest thing that two cards share on their way to the processor, nearest first.
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
  std::optional<unsigned> nvlinks;  // active ones between the two, directly or through switches
};

// Every pair of cards once (a before b), also of lost ones: nothing is known of those. MIG
// instances have no connections of their own.
struct Topology {
  std::vector<Connection> connections;
};

}  // namespace berth
