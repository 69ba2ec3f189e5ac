// `berth extend`: moves the announced end of a lease.
#pragma once

#include <chrono>
#include <string>

#include "base/result.h"
#include "harbour/record.h"

namespace berth {

// Adds `time` to the announced end of this user's lease `id`. If no end is announced, or it has
// passed, the end is `time` from now. Returns the lease with its new end. ErrorKind::usage: the
// harbour has no such lease. ErrorKind::permission: it belongs to another user. Root cannot extend
// it either: a lease belongs to the user who owns its file.
Result<Record> extend_lease(const std::string& id, std::chrono::nanoseconds time);

}  // namespace berth
