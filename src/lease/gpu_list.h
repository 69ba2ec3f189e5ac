// Parses lists of GPUs as users write them (--gpu, CUDA_VISIBLE_DEVICES), and finds the GPUs that
// they name. Pure functions on the GPUs of a snapshot.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "devices/gpu.h"

namespace berth {

// A list that names every GPU.
constexpr std::string_view kAllGpus = "all";

// The entries of "0,2", "0-3" (its numbers), "1:0", "GPU-1a2b,MIG-3c4d" or "all". Checks only that
// each looks like an index or a UUID, not that there is such a GPU. ErrorKind::usage if one does
// not.
Result<std::vector<std::string>> parse_gpu_list(std::string_view list);

// The arguments joined by commas, with the numbers of ranges. ErrorKind::usage if parse_gpu_list()
// refuses the result.
Result<std::string> join_gpu_list(const std::vector<std::string>& words);

// The UUIDs of the GPUs that `list` names, in its order. A UUID may be written in any case, and a
// prefix is enough if no other GPU's UUID starts with it. With Selectable::known the list may name
// lost GPUs whose UUID the driver reports.
// ErrorKind::usage: the list is malformed, ambiguous, or names a GPU twice.
// ErrorKind::impossible: this host has no such GPU, or cannot use it.
enum class Selectable : std::uint8_t { usable, known };
Result<std::vector<std::string>> select_gpus(const std::vector<Gpu>& gpus, std::string_view list,
                                             Selectable selectable = Selectable::usable);

// True if `uuid` starts with `start` in any case of letters. False for a `start` that says nothing,
// such as "GPU-".
bool uuid_starts_with(std::string_view uuid, std::string_view start);

// The GPU with this UUID; null if there is none in `gpus`.
const Gpu* find_gpu(const std::vector<Gpu>& gpus, const std::string& uuid);

// The UUIDs of the GPUs that CUDA_VISIBLE_DEVICES allows, read as CUDA reads it; std::nullopt if it
// is not set. `value` is the one from before berth was called. Lost GPUs are left out.
// ErrorKind::impossible: no GPU is left.
Result<std::optional<std::vector<std::string>>> select_visible_gpus(
    const std::vector<Gpu>& gpus, std::optional<std::string_view> value);

}  // namespace berth
