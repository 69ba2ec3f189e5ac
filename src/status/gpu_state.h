// What a GPU's condition means for somebody who wants one: its state, and the reason in words.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "status/host_view.h"

namespace berth {

enum class GpuState { free, leased, shared, stranger, drained, lost, unknown };

std::string_view to_string(GpuState state);

// Memory in use that no listed process accounts for, if it is more than a driver needs for itself:
// held by a process that the driver does not list (a zombie, or one hidden from us).
std::optional<Bytes> unexplained_memory(const Gpu& gpu);

struct GpuStateReason {
  GpuState state;
  std::string reason;  // one line, not yet made fit for a terminal; empty if the GPU is free
};

// Unknown is never free.
GpuStateReason classify(const GpuWithLeases& gpu_view);

}  // namespace berth
