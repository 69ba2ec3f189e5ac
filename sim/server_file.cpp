// Reads the JSON form of a simulated server; docs/simulated-driver.md documents every key.
#include <fmt/format.h>
#include <set>

#include "base/text.h"
#include "devices/nvml_abi.h"
#include "sim/json_fields.h"
#include "sim/server.h"
#include "sim/server_faults.h"

namespace berth::sim {
namespace {

constexpr Bytes kMaxMemory = gib(4096);
constexpr std::size_t kMaxStrangers = 1024;
constexpr std::size_t kMaxFaults = 256;
constexpr std::uint32_t kFirstStrangerPid = 5000001;  // above the largest PID of Linux

bool is_uuid(std::string_view text, std::string_view prefix) {
  constexpr std::string_view form = "-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  if (!text.starts_with(prefix) || text.size() != prefix.size() + form.size()) return false;
  text.remove_prefix(prefix.size());
  for (std::size_t i = 0; i < form.size(); ++i) {
    const bool hex = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
    if (form[i] == 'x' ? !hex : text[i] != '-') return false;
  }
  return true;
}

std::string read_uuid(Fields& fields, std::string_view prefix) {
  const auto uuid = fields.text("uuid");
  if (!uuid) return {};
  if (!is_uuid(*uuid, prefix)) {
    fields.report("uuid",
                  fmt::format("must look like {}-01234567-89ab-cdef-0123-456789abcdef", prefix));
  }
  return *uuid;
}

template <class T, std::size_t N>
T read_choice(Fields& fields, const char* key,
              const std::array<std::pair<std::string_view, T>, N>& choices) {
  const auto text = fields.text(key);
  if (!text) return choices.front().second;
  std::string all;
  for (const auto& [name, value] : choices) {
    if (name == *text) return value;
    all += fmt::format("{}\"{}\"", all.empty() ? "" : ", ", name);
  }
  fields.report(key, fmt::format("must be one of {}", all));
  return choices.front().second;
}

void read_instances(Fields& fields, Card& card) {
  const Json::Array* list = fields.list("mig", kMaxInstances);
  if (list == nullptr) return;
  card.mig_mode = true;
  Bytes sum = card.reserved_memory;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Json& entry = (*list)[i];
    if (entry.is_null()) {
      card.instances.emplace_back();
      continue;
    }
    Fields inner(entry, fmt::format("{}.mig[{}]", fields.where(), i), fields.problem());
    Instance instance;
    instance.memory = inner.size("memory", mib(1), kMaxMemory).value_or(Bytes{});
    instance.name = inner.text("name").value_or("");
    instance.uuid = read_uuid(inner, "MIG");
    if (!inner.has("memory")) inner.report("memory", "is missing");
    if (!inner.has("name")) inner.report("name", "is missing; write a name such as \"1g.10gb\"");
    if (instance.name.size() > 16) inner.report("name", "must have at most 16 bytes");
    sum.count += instance.memory.count;
    card.instances.push_back(std::move(instance));
  }
  if (sum > card.memory) fields.report("mig", "has more memory than the card");
}

std::string read_label(Fields& fields, const char* key) {
  const Json* value = fields.any(key);
  if (value == nullptr) return {};
  if (!value->as_integer() && !value->as_unsigned()) return fields.text(key).value_or("");
  return fmt::format("{}", fields.integer(key, 0, 1'000'000).value_or(0));
}

void read_cards(const Json& json, const std::string& where, FirstProblem& problem, Server& server) {
  Fields fields(json, where, problem);
  Card card;
  card.memory = fields.size("memory", mib(1), kMaxMemory).value_or(gib(1));
  if (!fields.has("memory")) fields.report("memory", "is missing; write a size such as \"24GiB\"");
  card.name =
      fields.text("name").value_or(fmt::format("Simulated {} GPU", format_size(card.memory)));
  card.reserved_memory = fields.size("reserved_memory", {}, card.memory).value_or(Bytes{});
  card.context_memory = fields.size("context_memory", {}, card.memory).value_or(Bytes{});
  card.uuid = read_uuid(fields, "GPU");
  card.numa_node = static_cast<int>(fields.integer("numa_node", 0, 63).value_or(0));
  card.host_bridge = read_label(fields, "host_bridge");
  card.pci_switch = read_label(fields, "pci_switch");
  card.speed = fields.number("speed", 0, 1e6).value_or(1);
  card.display = fields.flag("display", false);
  card.persistence_mode = fields.flag("persistence_mode", false);
  card.fan = fields.flag("fan", true);
  card.unified_memory = fields.flag("unified_memory", false);
  card.process_memory = fields.flag("process_memory", true);
  card.idle_power_w = static_cast<unsigned>(fields.integer("idle_power_w", 0, 10'000).value_or(30));
  card.power_limit_w =
      static_cast<unsigned>(fields.integer("power_limit_w", 1, 10'000).value_or(300));
  card.temperature_c = static_cast<unsigned>(fields.integer("temperature_c", 0, 150).value_or(35));
  if (card.idle_power_w > card.power_limit_w) {
    fields.report("idle_power_w", "must not be more than \"power_limit_w\"");
  }
  using Mode = std::pair<std::string_view, int>;
  card.compute_mode =
      read_choice(fields, "compute_mode",
                  std::array{Mode{"default", nvml::compute_default},
                             Mode{"prohibited", nvml::compute_prohibited},
                             Mode{"exclusive-process", nvml::compute_exclusive_process}});
  read_instances(fields, card);
  const auto count = fields.integer("count", 1, kMaxCards).value_or(1);
  const auto pci = fields.text("pci");
  if (count > 1 && (pci || !card.uuid.empty())) {
    fields.report("count", "cannot be used with \"pci\" or \"uuid\": each card has its own");
  }
  for (const auto& instance : card.instances) {
    if (count > 1 && instance && !instance->uuid.empty()) {
      fields.report("count", "cannot be used with the \"uuid\" of an instance: each has its own");
    }
  }
  const auto address = pci ? parse_pci(*pci) : std::nullopt;
  if (pci && !address) fields.report("pci", "must look like 0000:3B:00.0");
  for (long long i = 0; i < count && server.cards.size() < kMaxCards + 1; ++i) {
    // NVML numbers cards by PCI address. A card without an address follows the card before it.
    PciAddress next{0, 1, 0};
    if (!server.cards.empty()) {
      const PciAddress& last = server.cards.back().pci;
      next = last.bus < 0xFF ? PciAddress{last.domain, last.bus + 1, 0}
                             : PciAddress{last.domain + 1, 1, 0};
    }
    card.pci = address.value_or(next);
    if (!server.cards.empty() && card.pci <= server.cards.back().pci) {
      fields.report("pci", "must be higher than that of the previous card: cards are in PCI order");
    }
    server.cards.push_back(card);
  }
}

// Reads "gpu": 2, or "0:1" for an instance.
Unit read_unit(Fields& fields, const Server& server) {
  const Json* value = fields.any("gpu");
  if (value == nullptr) {
    fields.report("gpu", "is missing");
    return {};
  }
  Unit unit;
  if (value->as_string() != nullptr) {
    const std::string& text = *value->as_string();
    for (std::size_t card = 0; card < server.cards.size(); ++card) {
      for (std::size_t k = 0; k < server.cards[card].instances.size(); ++k) {
        const bool there = server.cards[card].instances[k].has_value();
        if (there && text == fmt::format("{}:{}", card, k)) return {card, k};
      }
    }
    fields.report("gpu", fmt::format("{} is not a MIG instance; write an index such as \"0:1\"",
                                     in_quotes(text)));
    return unit;
  }
  unit.card = read_card_index(fields, server).value_or(0);
  if (server.cards[unit.card].mig_mode) {
    fields.report(
        "gpu",
        fmt::format("must name an instance, such as \"{}:0\": the card is in MIG mode", unit.card));
  }
  return unit;
}

void read_stranger(const Json& json, std::size_t i, FirstProblem& problem, Server& server) {
  Fields fields(json, fmt::format("strangers[{}]", i), problem);
  Stranger stranger;
  stranger.unit = read_unit(fields, server);
  const auto pid = fields.integer("pid", 1, 0x7FFFFFFF);
  stranger.pid =
      pid ? static_cast<std::uint32_t>(*pid) : kFirstStrangerPid + static_cast<std::uint32_t>(i);
  stranger.name = fields.text("name").value_or("python");
  const Json* memory = fields.any("memory");
  if (memory == nullptr) {
    fields.report("memory", "is missing; write a size, or null if the driver does not report it");
  } else if (!memory->is_null()) {
    stranger.memory = fields.size("memory", {}, kMaxMemory);
  }
  using Kind = std::pair<std::string_view, ProcessKind>;
  stranger.kind = read_choice(
      fields, "type",
      std::array{Kind{"compute", ProcessKind::compute}, Kind{"graphics", ProcessKind::graphics},
                 Kind{"mps", ProcessKind::mps}});
  stranger.utilization = static_cast<unsigned>(fields.integer("utilization", 0, 100).value_or(0));
  stranger.hidden = fields.flag("hidden", false);
  stranger.window = read_window(fields);
  server.strangers.push_back(std::move(stranger));
}

PciAddress nvswitch_address(const Server& server, std::size_t number) {
  // Counts bus numbers down from the highest, without those of cards.
  for (std::uint32_t bus = 0xFF;; --bus) {
    const PciAddress address{0, bus, 0};
    const bool taken = std::any_of(server.cards.begin(), server.cards.end(),
                                   [&](const Card& card) { return card.pci == address; });
    if (!taken && number-- == 0) return address;
  }
}

void read_nvlink(const Json& json, std::size_t i, FirstProblem& problem, Server& server) {
  constexpr std::size_t switches = 4;
  Fields fields(json, fmt::format("nvlink[{}]", i), problem);
  const auto links =
      static_cast<std::size_t>(fields.integer("links", 1, nvml::kMaxNvLinks).value_or(1));
  const bool switched = fields.flag("switch", false);
  std::set<std::size_t> members;
  const Json::Array* list = fields.list("gpus", kMaxCards);
  for (std::size_t k = 0; list != nullptr && k < list->size(); ++k) {
    const auto card = (*list)[k].as_unsigned();
    if (!card || *card >= server.cards.size() || !members.insert(*card).second) {
      fields.report("gpus",
                    fmt::format("must be different numbers from 0 to {}", server.cards.size() - 1));
      return;
    }
  }
  if (members.size() < 2) fields.report("gpus", "must name two cards or more");
  for (const std::size_t from : members) {
    auto& ends = server.cards[from].nvlinks;
    for (std::size_t k = 0; switched && k < links; ++k) {
      ends.push_back(nvswitch_address(server, k % switches));
    }
    for (const std::size_t to : members) {
      if (!switched && to != from) ends.insert(ends.end(), links, server.cards[to].pci);
    }
    if (ends.size() > nvml::kMaxNvLinks) {
      fields.report("links",
                    fmt::format("give card {} more than {} links", from, nvml::kMaxNvLinks));
    }
  }
}

void read_versions(Fields& fields, Server& server) {
  if (const auto text = fields.text("driver_version")) {
    const auto version = parse_driver_version(*text);
    if (!version) fields.report("driver_version", "must look like 570.86.15");
    server.driver_version = version.value_or(DriverVersion{});
    server.driver_version_text = *text;
  }
  if (const auto text = fields.text("cuda_version")) {
    const auto version = parse_driver_version(*text);
    if (!version || version->patch != 0 || version->branch > 99 || version->minor > 9) {
      fields.report("cuda_version", "must look like 12.8");
    } else {
      server.cuda_version = version->branch * 1000 + version->minor * 10;
    }
  }
}

void check_uuids(const Server& server, FirstProblem& problem) {
  std::set<std::string_view> seen;
  const auto check = [&](const std::string& uuid) {
    if (!seen.insert(uuid).second) problem.report(fmt::format("two GPUs have the uuid {}", uuid));
  };
  for (const Card& card : server.cards) {
    check(card.uuid);
    for (const auto& instance : card.instances) {
      if (instance) check(instance->uuid);
    }
  }
}

void read_description(const Json& json, FirstProblem& problem, std::string_view identity,
                      Server& server) {
  Fields fields(json, "the description", problem);
  read_versions(fields, server);
  const Json::Array* gpus = fields.list("gpus", kMaxCards);
  const Json::Array* nvlinks = fields.list("nvlink", kMaxCards * kMaxCards);
  const Json::Array* strangers = fields.list("strangers", kMaxStrangers);
  const Json::Array* faults = fields.list("faults", kMaxFaults);
  for (std::size_t i = 0; gpus != nullptr && i < gpus->size(); ++i) {
    read_cards((*gpus)[i], fmt::format("gpus[{}]", i), problem, server);
  }
  if (server.cards.empty() || server.cards.size() > kMaxCards) {
    fields.report("gpus", fmt::format("must describe 1 to {} cards", kMaxCards));
  }
  // The rest refers to the cards, so that their problems would cause further ones.
  if (problem.any()) return;
  // Stop at the first problem: a file with too many links would otherwise fill the memory.
  for (std::size_t i = 0; nvlinks != nullptr && i < nvlinks->size() && !problem.any(); ++i) {
    read_nvlink((*nvlinks)[i], i, problem, server);
  }
  for (std::size_t i = 0; strangers != nullptr && i < strangers->size(); ++i) {
    read_stranger((*strangers)[i], i, problem, server);
  }
  for (std::size_t i = 0; faults != nullptr && i < faults->size(); ++i) {
    server.faults.push_back(
        read_fault((*faults)[i], fmt::format("faults[{}]", i), problem, server));
  }
  assign_uuids(server, identity);
  check_uuids(server, problem);
}

}  // namespace

Result<Server> parse_server(std::string_view text, std::string_view where,
                            std::string_view identity) {
  const auto refuse = [&](std::string_view what) {
    return fail(ErrorKind::usage,
                fmt::format("BERTH_SIM: {}: {}; correct the file", in_quotes(where), what));
  };
  const auto json = parse_description(text);
  if (!json) return refuse(fmt::format("the file {}", json.error().message));
  FirstProblem problem;
  Server server;
  read_description(*json, problem, identity, server);
  if (problem.any()) return refuse(problem.text());
  return server;
}

}  // namespace berth::sim
