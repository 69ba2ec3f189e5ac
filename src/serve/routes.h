// What there is to ask for: a table of methods and paths, and what answers each.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "serve/access.h"
#include "serve/http_request.h"
#include "serve/http_response.h"
#include "serve/snapshot.h"
#include "serve/viewer_count.h"
#include "serve/work_queue.h"

namespace berth::serve {

// All that an answer is made of. It outlives the server.
struct ServerContext {
  const AccessControl& access_control;
  const SnapshotPublisher& publisher;
  ViewerCount& viewer_count;
  WorkQueue& history_queue;  // reads the history
  WorkQueue& change_queue;   // takes the harbour's lock
  CommandVisibility command_visibility;
};

// One of them: an answer, the promise of one, or a stream.
struct RouteResult {
  std::optional<HttpResponse> response{};
  SharedPendingResponse pending{};
  bool stream = false;

  RouteResult(HttpResponse now)
      : response(std::move(now)) {}  // NOLINT(google-explicit-constructor)
  explicit RouteResult(SharedPendingResponse submitted);
  static RouteResult make_stream();

 private:
  RouteResult() = default;
};

// Checks who asks, finds what is meant, and answers. Never blocks. `local` is the address at which
// the request came in.
RouteResult handle_request(const HttpRequest& request, std::string_view local,
                           ServerContext& context);

}  // namespace berth::serve
