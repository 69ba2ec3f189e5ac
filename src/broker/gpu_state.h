// What a GPU's condition means for somebody who wants one: its state, and the reason in words.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "devices/gpu.h"

namespace berth {

enum class GpuState { free, leased, shared, stranger, drained, lost, unknown };

std::string_view to_string(GpuState state);

// A process that uses a GPU without a lease on it. Displays do not count: the one card that also
// drives the screen must stay usable.
bool is_stranger(const GpuProcess& process);

// Memory in use that no listed process accounts for, if it is more than a driver needs for itself:
// held by a process that the driver does not list (a zombie, or one hidden from us).
std::optional<Bytes> unexplained_memory(const Gpu& gpu);

struct Judgement {
  GpuState state;
  std::string reason;  // one line, not yet made fit for a terminal; empty if the GPU is free
};

// Unknown is never free.
Judgement judge(const Gpu& gpu);

}  // namespace berth
