// Reads lists of GPUs as users write them; see gpu_list.h.
#include "lease/gpu_list.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>

#include "base/text.h"

namespace berth {
namespace {

using GpuPointers = std::vector<const Gpu*>;

// Without the spaces around each entry.
std::vector<std::string_view> split_at_commas(std::string_view list) {
  std::vector<std::string_view> entries;
  while (true) {
    const auto comma = list.find(',');
    std::string_view entry = list.substr(0, comma);
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
    entries.push_back(entry);
    if (comma == std::string_view::npos) return entries;
    list.remove_prefix(comma + 1);
  }
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// "2" or "2:1".
bool is_index(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) return is_number(text);
  return is_number(text.substr(0, colon)) && is_number(text.substr(colon + 1));
}

// Adds each index of "2-5". False if the entry is not a range.
Result<bool> add_range(std::string_view entry, std::vector<std::string>& entries) {
  constexpr unsigned kMaxIndex = 4095;
  const std::size_t dash = entry.find('-');
  if (dash == std::string_view::npos || !is_number(entry.substr(0, dash)) ||
      !is_number(entry.substr(dash + 1)))
    return false;
  const auto first = parse_integer<unsigned>(entry.substr(0, dash));
  const auto last = parse_integer<unsigned>(entry.substr(dash + 1));
  if (!first || !last || *last > kMaxIndex || *first > *last) {
    return fail(ErrorKind::usage,
                fmt::format("{} is not a range of GPUs, such as 0-3", in_quotes(entry)));
  }
  for (unsigned i = *first; i <= *last; ++i) entries.push_back(std::to_string(i));
  return true;
}

bool starts_with_ignoring_case(std::string_view text, std::string_view start) {
  const auto same = [](unsigned char a, unsigned char b) {
    return std::tolower(a) == std::tolower(b);
  };
  return text.size() >= start.size() && std::equal(start.begin(), start.end(), text.begin(), same);
}

// True for a UUID or a prefix of one that is longer than "GPU-".
bool is_uuid(std::string_view text) {
  return text.size() > 4 &&
         (starts_with_ignoring_case(text, "GPU-") || starts_with_ignoring_case(text, "MIG-"));
}

// The GPUs whose UUID starts with `start`. A complete UUID matches only its own GPU: the older
// UUIDs of MIG instances end in numbers, and "…/1/1" is a prefix of "…/1/10".
GpuPointers find_by_uuid_prefix(const std::vector<Gpu>& gpus, std::string_view start) {
  GpuPointers found;
  for (const Gpu& gpu : gpus) {
    if (!gpu.uuid || !starts_with_ignoring_case(*gpu.uuid, start)) continue;
    if (gpu.uuid->size() == start.size()) return {&gpu};
    found.push_back(&gpu);
  }
  return found;
}

std::string format_indices(const GpuPointers& gpus) {
  return join_text(gpus, ",", [](const Gpu* gpu) { return to_string(gpu->index); });
}

std::string describe_host_gpus(const std::vector<Gpu>& gpus) {
  if (gpus.empty()) return "this host has no GPU";
  const GpuIndex first = gpus.front().index;
  const GpuIndex last = gpus.back().index;
  if (gpus.size() == 1) return fmt::format("this host has only GPU {}", to_string(first));
  const bool cards_only =
      std::none_of(gpus.begin(), gpus.end(), [](const Gpu& gpu) { return gpu.index.instance; });
  if (cards_only && last.card - first.card + 1 == gpus.size()) {
    return fmt::format("this host has GPUs {} to {}", first.card, last.card);
  }
  GpuPointers all;
  for (const Gpu& gpu : gpus) all.push_back(&gpu);
  return fmt::format("this host has GPUs {}", format_indices(all));
}

// Why the GPU cannot be leased; nothing if it can. A GPU without a UUID cannot be identified.
std::optional<std::string> describe_defect(const Gpu& gpu) {
  if (gpu.health != Health::lost && gpu.uuid) return std::nullopt;
  return fmt::format("GPU {} cannot be used: {}", to_string(gpu.index),
                     gpu.problem.empty() ? "the driver does not report its UUID" : gpu.problem);
}

Result<const Gpu*> find_gpu_by_index(const std::vector<Gpu>& gpus, std::string_view index) {
  GpuPointers instances;
  for (const Gpu& gpu : gpus) {
    // Compared as text, so that no number is too large to parse.
    if (to_string(gpu.index) == index) return &gpu;
    if (gpu.index.instance && std::to_string(gpu.index.card) == index) instances.push_back(&gpu);
  }
  if (!instances.empty()) {
    return fail(ErrorKind::impossible,
                fmt::format("card {} is in MIG mode; name one or more of its instances: {}", index,
                            format_indices(instances)));
  }
  return fail(ErrorKind::impossible,
              fmt::format("there is no GPU {}; {}", truncate_text(index, 20, Charset::ascii),
                          describe_host_gpus(gpus)));
}

Result<const Gpu*> find_gpu_by_uuid(const std::vector<Gpu>& gpus, std::string_view uuid) {
  const GpuPointers found = find_by_uuid_prefix(gpus, uuid);
  if (found.size() == 1) return found.front();
  if (!found.empty()) {
    return fail(ErrorKind::usage, fmt::format("{} matches GPUs {}; write more of the UUID",
                                              in_quotes(uuid), format_indices(found)));
  }
  // The user may mean a GPU whose UUID the driver does not report.
  const auto gpu_without_uuid =
      std::find_if(gpus.begin(), gpus.end(), [](const Gpu& gpu) { return !gpu.uuid; });
  return fail(ErrorKind::impossible,
              fmt::format("there is no GPU {}; {}{}", in_quotes(uuid), describe_host_gpus(gpus),
                          gpu_without_uuid == gpus.end()
                              ? ""
                              : fmt::format("; {}", *describe_defect(*gpu_without_uuid))));
}

// The GPUs that an entry means to CUDA; none if it is invalid. A number is an index of the driver:
// berth sets CUDA_DEVICE_ORDER=PCI_BUS_ID for its jobs, so users may rely on that order. The number
// of a card in MIG mode means its instances.
GpuPointers resolve_cuda_entry(const std::vector<Gpu>& gpus, std::string_view entry) {
  if (is_uuid(entry)) {
    GpuPointers found = find_by_uuid_prefix(gpus, entry);
    return found.size() == 1 ? found : GpuPointers{};
  }
  GpuPointers found;
  const auto card = parse_integer<unsigned>(entry);
  for (const Gpu& gpu : gpus) {
    if (card == gpu.index.card) found.push_back(&gpu);
  }
  return found;
}

struct VisibleDevices {
  std::vector<std::string> uuids;
  std::string reason;  // why the list does not have more GPUs
};

VisibleDevices parse_visible_devices(const std::vector<Gpu>& gpus, std::string_view value) {
  if (value.empty()) return {{}, "the list is empty"};
  VisibleDevices visible;
  GpuPointers seen;
  for (const std::string_view entry : split_at_commas(value)) {
    const GpuPointers found = resolve_cuda_entry(gpus, entry);
    if (found.empty()) {  // an invalid entry ends the list for CUDA: "0,2,-1,1" means 0 and 2
      visible.reason = fmt::format("{} is not a GPU of this host", in_quotes(entry));
      break;
    }
    for (const Gpu* gpu : found) {
      if (std::find(seen.begin(), seen.end(), gpu) != seen.end()) {
        return {{}, fmt::format("the list names GPU {} twice", to_string(gpu->index))};
      }
      seen.push_back(gpu);
      if (const auto defect = describe_defect(*gpu)) {
        visible.reason = *defect;
      } else {
        visible.uuids.push_back(*gpu->uuid);
      }
    }
  }
  return visible;
}

}  // namespace

Result<std::vector<std::string>> parse_gpu_list(std::string_view list) {
  std::vector<std::string> entries;
  for (const std::string_view entry : split_at_commas(list)) {
    if (entry.empty()) {
      return fail(ErrorKind::usage,
                  fmt::format("the list of GPUs {} has an empty entry; write indices or UUIDs "
                              "separated by commas, such as 0,2",
                              in_quotes(list)));
    }
    if (entry == kAllGpus && list != kAllGpus) {
      return fail(ErrorKind::usage, fmt::format("'all' in {} already includes the other GPUs; "
                                                "write only all",
                                                in_quotes(list)));
    }
    if (TRY(add_range(entry, entries))) continue;
    if (!is_index(entry) && !is_uuid(entry) && entry != kAllGpus) {
      return fail(ErrorKind::usage,
                  fmt::format("{} is neither an index (2, 2-5, or 2:1 for a MIG instance) nor the "
                              "start of a UUID (GPU-1a2b); 'berth status' lists the GPUs",
                              in_quotes(entry)));
    }
    entries.emplace_back(entry);
  }
  return entries;
}

bool uuid_starts_with(std::string_view uuid, std::string_view start) {
  return is_uuid(start) && starts_with_ignoring_case(uuid, start);
}

Result<std::string> join_gpu_list(const std::vector<std::string>& words) {
  return join_text(TRY(parse_gpu_list(join_text(words, ","))), ",");
}

Result<std::vector<std::string>> select_gpus(const std::vector<Gpu>& gpus, std::string_view list,
                                             Selectable selectable) {
  const std::vector<std::string> entries = TRY(parse_gpu_list(list));
  std::vector<std::string> uuids;
  if (list == kAllGpus) {
    for (const Gpu& gpu : gpus) {
      if (gpu.uuid && (selectable == Selectable::known || !describe_defect(gpu)))
        uuids.push_back(*gpu.uuid);
    }
    return uuids;
  }
  for (const std::string& entry : entries) {
    const Gpu* const gpu =
        TRY(is_index(entry) ? find_gpu_by_index(gpus, entry) : find_gpu_by_uuid(gpus, entry));
    if (const auto defect = describe_defect(*gpu);
        defect && (!gpu->uuid || selectable == Selectable::usable)) {
      return fail(ErrorKind::impossible, *defect);
    }
    const std::string& uuid = *gpu->uuid;
    if (std::find(uuids.begin(), uuids.end(), uuid) != uuids.end()) {
      return fail(ErrorKind::usage, fmt::format("{} names GPU {} twice; name each GPU once",
                                                in_quotes(list), to_string(gpu->index)));
    }
    uuids.push_back(uuid);
  }
  return uuids;
}

const Gpu* find_gpu(const std::vector<Gpu>& gpus, const std::string& uuid) {
  const auto found =
      std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& gpu) { return gpu.uuid == uuid; });
  return found == gpus.end() ? nullptr : &*found;
}

Result<std::optional<std::vector<std::string>>> select_visible_gpus(
    const std::vector<Gpu>& gpus, std::optional<std::string_view> value) {
  if (!value) return std::optional<std::vector<std::string>>{};
  VisibleDevices visible = parse_visible_devices(gpus, *value);
  if (!visible.uuids.empty()) return std::move(visible.uuids);
  return fail(
      ErrorKind::impossible,
      fmt::format("CUDA_VISIBLE_DEVICES={} allows no GPU: {}; correct or unset the variable "
                  "({})",
                  in_quotes(*value), visible.reason, describe_host_gpus(gpus)));
}

}  // namespace berth
