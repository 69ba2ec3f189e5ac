// Reads and merges NVML's process lists; see nvml_processes.h.
#include "devices/nvml_processes.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <span>
#include <tl/expected.hpp>

namespace berth::nvml {
namespace {

using ListFunction = Return (*)(Device, unsigned*, void*);

constexpr unsigned kInitialCapacity = 32;  // entries; usually saves the call for the number
constexpr unsigned kMaxEntries = 65536;    // a driver that reports more is broken
constexpr int kMaxAttempts = 8;            // the list may grow between two calls

std::size_t stride_of(std::size_t version, ListLayout layout) {
  switch (version) {
    case 0:
      return sizeof(ProcessInfoV1);
    case 1:
      return sizeof(ProcessInfoV2);
    default:
      return layout.v3_stride;
  }
}

// Reads one list by one version of its function, whose entries have `stride` bytes.
tl::expected<std::vector<ProcessInfoV1>, Return> read_version(ListFunction function, Device device,
                                                              std::size_t stride) {
  unsigned capacity = kInitialCapacity;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    std::vector<unsigned char> buffer(capacity * stride);
    unsigned count = capacity;
    const Return answer = function(device, &count, buffer.data());
    if (answer == insufficient_size && count < kMaxEntries) {
      capacity = std::max(count, capacity) * 2;
      continue;
    }
    if (answer != success) return tl::make_unexpected(answer);
    std::vector<ProcessInfoV1> entries(std::min(count, capacity));
    for (std::size_t i = 0; i < entries.size(); ++i) {
      // Every version starts with the fields of v1.
      std::memcpy(&entries[i], buffer.data() + i * stride, sizeof(ProcessInfoV1));
    }
    return entries;
  }
  return tl::make_unexpected(insufficient_size);
}

// Reads a list by the newest version that this driver has. If a driver lacks a version, its library
// lacks the symbol, or the function returns function_not_found.
tl::expected<std::vector<ProcessInfoV1>, Return> read_list(
    std::span<const ListFunction, 3> versions, Device device, ListLayout layout) {
  for (std::size_t version = versions.size(); version-- > 0;) {
    if (versions[version] == nullptr) continue;
    auto entries = read_version(versions[version], device, stride_of(version, layout));
    if (!entries && entries.error() == function_not_found) continue;
    return entries;
  }
  return tl::make_unexpected(function_not_found);
}

void merge_entries(std::vector<GpuProcess>& into, const std::vector<ProcessInfoV1>& entries,
                   ProcessKind kind) {
  for (const ProcessInfoV1& entry : entries) {
    std::optional<Bytes> memory;
    if (entry.used_memory != kMemoryNotAvailable) memory = Bytes{entry.used_memory};
    const auto known = std::find_if(into.begin(), into.end(), [&](const GpuProcess& process) {
      return process.pid == std::int64_t{entry.pid};
    });
    if (known == into.end()) {
      into.push_back({entry.pid, kind, memory, std::nullopt, std::nullopt});
      continue;
    }
    // Each list has the process's whole memory on the GPU, so the values must not be added.
    known->memory = std::max(known->memory, memory);
    if (kind == ProcessKind::compute) known->kind = kind;
  }
}

bool is_missing_list(Return answer) {
  return answer == not_supported || answer == function_not_found;
}

}  // namespace

ListLayout detect_list_layout(std::string_view driver_version) {
  unsigned major = 0;
  unsigned minor = 0;
  const auto* end = driver_version.data() + driver_version.size();
  const auto [dot, problem] = std::from_chars(driver_version.data(), end, major);
  if (problem != std::errc{} || dot == end) return {};
  std::from_chars(dot + 1, end, minor);
  if (major == 535 && minor >= 43 && minor <= 86) return {sizeof(ProcessDetail)};
  return {};
}

ProcessListResult read_processes(const Api& api, Device device, ListLayout layout) {
  ProcessListResult result;
  const auto compute = read_list(api.compute_processes, device, layout);
  if (compute) {
    merge_entries(result.processes, *compute, ProcessKind::compute);
  } else {
    result.compute = compute.error();
  }
  const auto add_optional = [&](const auto& versions, ProcessKind kind) {
    const auto list = read_list(versions, device, layout);
    if (list) {
      merge_entries(result.processes, *list, kind);
    } else if (!is_missing_list(list.error())) {
      result.optional_lists = list.error();
    }
  };
  add_optional(api.mps_processes, ProcessKind::compute);
  add_optional(api.graphics_processes, ProcessKind::graphics);
  std::sort(result.processes.begin(), result.processes.end(),
            [](const GpuProcess& a, const GpuProcess& b) { return a.pid < b.pid; });
  return result;
}

}  // namespace berth::nvml
