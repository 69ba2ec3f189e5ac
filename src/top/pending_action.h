// An action (cancel, end or release) that the user must confirm, and the checks before. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>

#include "base/result.h"
#include "top/rows.h"

namespace berth::top {

struct PendingAction {
  enum class Kind : std::uint8_t { cancel, end_job, release };
  Kind kind = Kind::cancel;
  std::string id;
  std::string question;  // names the effect; not yet escaped for the terminal
};

// The action of the key `c` or `r` on the row, for the user `viewer`: `c` cancels a ticket or ends
// a running job, `r` releases the lease of a shell. The error says why the action is not possible.
// These checks only give an early message: the harbour checks everything again.
Result<PendingAction> make_cancel_action(const Row& row, uid_t viewer);
Result<PendingAction> make_release_action(const Row& row, uid_t viewer);

// "0,2": the indices of a lease's GPUs on its host; the UUID of a GPU that the host does not show.
std::string format_lease_gpus(const Record& lease, const Status& host);

}  // namespace berth::top
