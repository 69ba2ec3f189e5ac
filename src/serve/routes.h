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

namespace berth {

// All that an answer is made of. It outlives the server.
struct ServerContext {
  const Guard& guard;
  const SnapshotPublisher& board;
  ViewerCount& audience;
  WorkQueue& archive;  // reads the history
  WorkQueue& changes;  // takes the harbour's lock
  CommandVisibility commands_of;
};

// One of them: an answer, the promise of one, or a stream.
struct HttpReply {
  std::optional<HttpAnswer> answer{};
  SharedPending later{};
  bool stream = false;

  HttpReply(HttpAnswer now) : answer(std::move(now)) {}  // NOLINT(google-explicit-constructor)
  explicit HttpReply(SharedPending slip);
  static HttpReply streaming();

 private:
  HttpReply() = default;
};

// Checks who asks, finds what is meant, and answers. Never blocks. `local` is the address at which
// the request came in.
HttpReply reply_to(const HttpRequest& request, std::string_view local, ServerContext& counter);

}  // namespace berth
