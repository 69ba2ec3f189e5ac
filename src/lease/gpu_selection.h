// Which GPUs people mean when they name some: with --gpu, and with a CUDA_VISIBLE_DEVICES that was
// set before berth was called. Pure: the GPUs are those of a snapshot.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "devices/gpu.h"

namespace berth {

// The entries of "0,2", "1:0" or "GPU-1a2b,MIG-3c4d", as views into `list`. Each looks like an
// index or a UUID; whether there is such a GPU, only the driver knows. ErrorKind::usage if not.
Result<std::vector<std::string_view>> parse_gpu_list(std::string_view list);

// The words as one list, well-formed. ErrorKind::usage if not.
Result<std::string> join_gpu_list(const std::vector<std::string>& words);

// The UUIDs of the GPUs that `list` names, in its order. A UUID may be written in any case, and its
// start is enough if no other GPU's starts so.
// ErrorKind::usage: the list is malformed, ambiguous, or names a GPU twice.
// ErrorKind::impossible: this host has no such GPU, or cannot use it.
// With Selectable::known a lost GPU will do, if the driver says its UUID.
enum class Selectable : std::uint8_t { usable, known };
Result<std::vector<std::string>> select_gpus(const std::vector<Gpu>& gpus, std::string_view list,
                                             Selectable selectable = Selectable::usable);

// Does the UUID start so? In any case of letters, and with more than what all UUIDs start with.
bool uuid_starts_with(std::string_view uuid, std::string_view start);

// The UUIDs that CUDA_VISIBLE_DEVICES, with the value that the caller of berth gave it, leaves to
// choose from; std::nullopt if it is not set. A lost GPU is never among them.
// ErrorKind::impossible: it leaves none.
Result<std::optional<std::vector<std::string>>> select_visible_gpus(
    const std::vector<Gpu>& gpus, std::optional<std::string_view> value);

}  // namespace berth
