// The changes that a page may ask for, as the commands make them: by the user who serves.
#pragma once

#include <string>

#include "base/result.h"
#include "serve/snapshot.h"
#include "serve/work_queue.h"

namespace berth::serve {

struct ChangeRequest {
  std::string target;  // the id or UUID in the path
  std::string body;
  SharedServeSnapshot snapshot;  // what was last seen
};

// Each gives what is to be done at a desk, or says what is wrong with the request.
Result<WorkQueue::Work> prepare_cancel(const ChangeRequest& request);
Result<WorkQueue::Work> prepare_release(const ChangeRequest& request);
Result<WorkQueue::Work> prepare_drain(const ChangeRequest& request);
Result<WorkQueue::Work> prepare_undrain(const ChangeRequest& request);

}  // namespace berth::serve
