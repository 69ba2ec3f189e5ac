// What a person may want done to a lease or ticket: what will happen, or why it cannot be. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>

#include "base/result.h"
#include "top/rows.h"

namespace berth::top {

struct PendingAction {
  enum class Kind : std::uint8_t { cancel, release };
  Kind kind = Kind::cancel;
  std::string id;
  std::string question;  // names what will happen; as it came
};

// What `c` or `r` on the row means to the user `viewer`. The error says why not; the harbour checks
// it all again when it is done.
Result<PendingAction> make_cancel_action(const Row& row, uid_t viewer);
Result<PendingAction> make_release_action(const Row& row, uid_t viewer);

// "0,2": the GPUs of a lease as this host numbers them, else their UUIDs.
std::string format_gpu_list(const Record& lease, const Status& host);

}  // namespace berth::top
