// What happened, as `berth log` and `berth report` tell it: work for a desk (work_queue.h).
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
  SharedServeSnapshot snapshot;  // what was last seen
};

// The same for all who ask the same.
std::string history_cache_key(const char* endpoint, const HistoryQuery& query);

// What is wrong with a query is said by the answer, too: to look a user up may take a while.
HttpResponse make_log_response(const HistoryQuery& query);
HttpResponse make_report_response(const HistoryQuery& query);
HttpResponse make_timeline_response(const HistoryQuery& query);

}  // namespace berth::serve
