// The endpoints about the past: the same data as `berth log` and `berth report`, and the timeline.
//
// They read the archive and look up users, which is slow: they run in the history queue
// (work_queue.h), not in the thread of a connection.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "serve/http_request.h"
#include "serve/snapshot.h"

namespace berth::serve {

struct HistoryQuery {
  QueryParameters parameters;
  CommandVisibility command_visibility;
  SharedServeSnapshot snapshot;  // the newest one
};

// The key for WorkQueue::submit_once(): equal for requests that get the same response.
std::string history_cache_key(const std::string& path, const HistoryQuery& query);

// The JSON documents. ErrorKind::usage: the query is invalid. Other errors: the history cannot be
// read.
Result<std::string> log_document(const HistoryQuery& query);
Result<std::string> report_document(const HistoryQuery& query);
Result<std::string> timeline_document(const HistoryQuery& query);

}  // namespace berth::serve
