// The description of a simulated server: cards, links, strangers and faults.
//
// Plain data. read_server() checks it completely, so that users of a Server need not check it
// again.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/quantity.h"
#include "base/result.h"
#include "sim/driver_version.h"

namespace berth::sim {

constexpr std::size_t kMaxCards = 64;
constexpr std::size_t kMaxInstances = 7;

// A device with its own memory: a whole card, or one MIG instance of it.
struct Unit {
  std::size_t card = 0;
  std::optional<std::size_t> instance;  // the index in Card::instances
  bool operator==(const Unit&) const = default;
};

struct PciAddress {
  std::uint32_t domain = 0;
  std::uint32_t bus = 0;
  std::uint32_t device = 0;
  auto operator<=>(const PciAddress&) const = default;
};
// Parses "0000:3B:00.0", with a domain of 4 or 8 digits.
std::optional<PciAddress> parse_pci(std::string_view text);

struct Instance {
  std::string name;  // 1g.10gb
  std::string uuid;  // MIG-…
  Bytes memory;
};

struct Card {
  std::string name;
  std::string uuid;  // GPU-…
  Bytes memory;
  Bytes reserved_memory;  // by the driver
  Bytes context_memory;   // used by each context
  PciAddress pci;
  int numa_node = 0;
  std::string host_bridge;  // empty: not described
  std::string pci_switch;
  double speed = 1;
  bool display = false;
  int compute_mode = 0;  // nvml::ComputeModeCode
  bool persistence_mode = false;
  bool fan = true;
  bool unified_memory = false;
  bool process_memory = true;  // the driver reports the memory of each process
  unsigned idle_power_w = 30;
  unsigned power_limit_w = 300;
  unsigned temperature_c = 35;
  bool mig_mode = false;
  std::vector<std::optional<Instance>> instances;  // nullopt: an index without an instance
  std::vector<PciAddress> nvlinks;                 // the remote end of each link
};

// A span of time since the server's start, without `until` itself.
struct Window {
  std::chrono::nanoseconds after{0};
  std::optional<std::chrono::nanoseconds> until;
  bool contains(std::chrono::nanoseconds uptime) const {
    return uptime >= after && (!until || uptime < *until);
  }
};

enum class ProcessKind { compute, graphics, mps };

struct Stranger {
  Unit unit;
  std::uint32_t pid = 0;
  std::string name;
  std::optional<Bytes> memory;  // nullopt: the driver does not know
  ProcessKind kind = ProcessKind::compute;
  unsigned utilization = 0;
  bool hidden = false;  // uses memory, but is not in the process lists
  Window window;
};

struct Fault {
  enum class Effect { answer, delay, hang, lost };
  std::string call;  // empty for lost
  std::optional<std::size_t> card;
  Window window;
  Effect effect = Effect::answer;
  int answer = 0;
  std::chrono::nanoseconds delay{0};
};

struct Server {
  std::string driver_version_text = "570.86.15";
  DriverVersion driver_version{570, 86, 15};
  int cuda_version = 12080;  // major * 1000 + minor * 10
  std::vector<Card> cards;   // in the order of their PCI addresses, which is NVML's
  std::vector<Stranger> strangers;
  std::vector<Fault> faults;
};

// Reads the server that `value` (of BERTH_SIM) describes: "4x24GiB", or the path of a JSON file.
// UUIDs that the description lacks are derived from `identity`. The error is ErrorKind::usage with
// one printable line.
Result<Server> read_server(std::string_view value, std::string_view identity);

// The JSON form of read_server(), from text. `where` is the name of the file for errors.
Result<Server> parse_server(std::string_view text, std::string_view where,
                            std::string_view identity);

// Sets the UUIDs that the description lacks.
void assign_uuids(Server& server, std::string_view identity);

}  // namespace berth::sim
