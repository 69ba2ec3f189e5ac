// The endpoints that change something: cancel, release, drain and undrain.
//
// Each does what the command of the same name does, with the rights of the user who runs the
// server.
#pragma once

#include <string>

#include "base/result.h"
#include "serve/snapshot.h"
#include "serve/work_queue.h"

namespace berth::serve {

struct ChangeRequest {
  std::string target;  // the id or UUID in the path
  std::string body;
  SharedServeSnapshot snapshot;  // the newest one
};

// For error responses: "'x' is not an id (8 letters and digits)".
std::string describe_invalid_id(const std::string& text);

// Each validates the request and returns the work for the change queue (work_queue.h). The work
// takes the harbour's lock, so it must not run in the thread of a connection. ErrorKind::usage if
// the target or the body is malformed.
Result<WorkQueue::Work> prepare_cancel(const ChangeRequest& request);
Result<WorkQueue::Work> prepare_release(const ChangeRequest& request);
Result<WorkQueue::Work> prepare_drain(const ChangeRequest& request);
Result<WorkQueue::Work> prepare_undrain(const ChangeRequest& request);

}  // namespace berth::serve
