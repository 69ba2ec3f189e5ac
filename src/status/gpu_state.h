// The state of a GPU as users see it, such as free or leased, and the reason for that state.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "status/host_view.h"

namespace berth {

enum class GpuState { free, leased, shared, stranger, drained, lost, unknown };

std::string_view to_string(GpuState state);

// Memory in use that no listed process accounts for, if it is more than the driver needs for
// itself. It belongs to a process that the driver does not list (a zombie, or a hidden process).
std::optional<Bytes> unexplained_memory(const Gpu& gpu);

struct GpuStateReason {
  GpuState state;
  // One line; empty if the GPU is free. May have control characters, so printable() before it is
  // shown.
  std::string reason;
};

// A GPU whose state is unknown is never free.
GpuStateReason classify(const GpuWithLeases& gpu_view);

}  // namespace berth
