// The changes that a page may ask for, as the commands make them: by the user who serves.
#pragma once

#include <string>

#include "base/result.h"
#include "serve/snapshot.h"
#include "serve/work_queue.h"

namespace berth {

struct ChangeAsked {
  std::string word;  // the id or UUID in the path
  std::string body;
  SharedServeSnapshot picture;  // what was last seen
};

// Each gives what is to be done at a desk, or says what is wrong with the request.
Result<WorkQueue::Work> change_cancel(const ChangeAsked& asked);
Result<WorkQueue::Work> change_release(const ChangeAsked& asked);
Result<WorkQueue::Work> change_drain(const ChangeAsked& asked);
Result<WorkQueue::Work> change_undrain(const ChangeAsked& asked);

}  // namespace berth
