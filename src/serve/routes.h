// Routes a request to its handler: the table of methods and paths.
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
#include "serve/viewer_activity.h"
#include "serve/work_queue.h"

namespace berth::serve {

// What the handlers use. Must outlive the server. Its members are thread-safe.
struct ServerContext {
  const AccessControl& access_control;
  const SnapshotPublisher& publisher;
  ViewerActivity& viewer_activity;
  WorkQueue& history_queue;     // for work that reads the history
  WorkQueue& change_queue;      // for work that takes the harbour's lock
  WorkQueue& end_queue;         // for ends of jobs, which take up to the grace time
  WorkQueue& job_output_queue;  // for work that reads the user's home folder
  CommandVisibility command_visibility;
};

// Exactly one of: a response, a response that a WorkQueue will set, or the event stream.
struct RouteResult {
  std::optional<HttpResponse> response{};
  SharedPendingResponse pending{};
  bool stream = false;
  bool stream_with_jobs = false;  // the viewer may see the jobs of the server's user

  RouteResult(HttpResponse now)
      : response(std::move(now)) {}  // NOLINT(google-explicit-constructor)
  // Null means that the queue was full: the result is then a response with status 503.
  explicit RouteResult(SharedPendingResponse submitted);
  static RouteResult make_stream(bool with_jobs);

 private:
  RouteResult() = default;
};

// Checks access, finds the route and calls its handler. Never blocks. `local` is the address of
// this server at which the request arrived.
RouteResult handle_request(const HttpRequest& request, std::string_view local,
                           ServerContext& context);

}  // namespace berth::serve
