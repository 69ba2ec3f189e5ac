// Taking GPUs out of service and back into it. Root and the owner of the harbour may.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "harbour/drain.h"
#include "harbour/record.h"

namespace berth {

// Nobody is granted these GPUs any more. Gives the leases that hold one of them, which stay until
// they end. Draining again replaces the reason. Makes the harbour where there is none.
// ErrorKind::permission: this user may not.
Result<std::vector<Record>> drain_gpus(const std::vector<std::string>& uuids,
                                       const std::string& reason);

// Every GPU that is out of service, also those that this host does not have any more. Asked by who
// wants to undrain: ErrorKind::permission if this user may not. Makes no harbour.
Result<std::vector<Drain>> read_removable_drains();

// Back into service; whoever waits is woken. A GPU that is not drained is no error.
Result<void> undrain_gpus(const std::vector<std::string>& uuids);

// The one drained GPU whose UUID is, or starts with, `start`; nothing if there is none.
// ErrorKind::usage if there are several.
Result<std::string> find_drained_gpu(const std::vector<Drain>& drains, const std::string& start);

}  // namespace berth
