// What a viewer is sent; see stream.h.
#include "serve/stream.h"

#include <fmt/format.h>

#include "base/json.h"

namespace berth {
namespace {

SharedText shared(std::string text) {
  return std::make_shared<const std::string>(std::move(text));
}

StreamPieces problem_event(const std::string& problem) {
  const Json json{{"text", problem}};
  return stream_event("problem", shared(json.dump(-1, ' ', true, Json::error_handler_t::replace)));
}

}  // namespace

StreamPieces stream_event(const char* name, SharedText data) {
  static const SharedText end = shared("\n\n");
  return {shared(fmt::format("event: {}\ndata: ", name)), std::move(data), end};
}

// In this order, so that a page has the past before it draws the present.
StreamPieces Viewer::news(const ServeSnapshot& picture) {
  if (!greeted_) {
    greeted_ = true;
    history_ = picture.history_number;  // what has ended before he came is nothing new
    return stream_event("hello", hello_);
  }
  if (picture.samples && sample_ != picture.sample_number) {
    const bool missed = !has_samples_ || picture.sample_number != sample_ + 1;
    has_samples_ = true;
    sample_ = picture.sample_number;
    return missed ? stream_event("samples", picture.samples)
                  : stream_event("sample", picture.sample);
  }
  // What was last seen, even if nothing can be seen now: but never behind the problem, since a
  // status heals that.
  const bool blind = !picture.problem.empty();
  if (picture.stream_status && status_ != picture.status_number && (!blind || status_ == 0)) {
    status_ = picture.status_number;
    return stream_event("status", picture.stream_status);
  }
  if (problem_ != picture.problem_number) {
    problem_ = picture.problem_number;
    if (blind) return problem_event(picture.problem);
  }
  if (history_ != picture.history_number) {
    history_ = picture.history_number;
    return stream_event("history", shared("{}"));
  }
  return {};
}

StreamPieces Viewer::next(const ServeSnapshot& picture, Clock::time_point now) {
  StreamPieces pieces = news(picture);
  if (pieces.empty() && now >= alive_until()) pieces = {shared(": alive\n\n")};
  if (!pieces.empty()) sent_ = now;
  return pieces;
}

}  // namespace berth
