// The endpoints about the past: the same data as `berth log` and `berth report`, and the timeline.
//
// They read the archive and look up users, which is slow: they run in the history queue
// (work_queue.h), not in the thread of a connection.
#pragma once

#include <string>

#include "base/json.h"
#include "serve/http_request.h"
#include "serve/http_response.h"
#include "serve/snapshot.h"

namespace berth::serve {

struct HistoryQuery {
  QueryParameters parameters;
  CommandVisibility command_visibility;
  SharedServeSnapshot snapshot;  // the newest one
};

// The key for WorkQueue::submit_once(): equal for requests that get the same response.
std::string history_cache_key(const char* endpoint, const HistoryQuery& query);

// An invalid query yields an error response (400), and a failure to read the history one of 503.
HttpResponse make_log_response(const HistoryQuery& query);
HttpResponse make_report_response(const HistoryQuery& query);
HttpResponse make_timeline_response(const HistoryQuery& query);

}  // namespace berth::serve
