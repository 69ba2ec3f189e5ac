// What happened, as `berth log` and `berth report` tell it: work for a desk (desk.h).
#pragma once

#include <string>

#include "base/json.h"
#include "serve/http_request.h"
#include "serve/http_response.h"
#include "serve/snapshot.h"

namespace berth {

struct HistoryQuery {
  QueryPairs query;
  CommandVisibility commands_of;
  SharedServeSnapshot picture;  // what was last seen
};

// The same for all who ask the same.
std::string question_of(const char* what, const HistoryQuery& asked);

// What is wrong with a query is said by the answer, too: to look a user up may take a while.
HttpAnswer past_log(const HistoryQuery& asked);
HttpAnswer past_report(const HistoryQuery& asked);
HttpAnswer past_timeline(const HistoryQuery& asked);

}  // namespace berth
