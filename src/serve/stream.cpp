// Chooses and formats the events of a viewer; see stream.h.
#include "serve/stream.h"

#include <fmt/format.h>

#include "base/json.h"

namespace berth::serve {
namespace {

EventPieces format_problem(const std::string& problem) {
  const Json json{{"text", problem}};
  return format_event("problem", share_text(to_ascii_json(json)));
}

}  // namespace

EventPieces format_event(const char* name, SharedText data) {
  static const SharedText end = share_text("\n\n");
  return {share_text(fmt::format("event: {}\ndata: ", name)), std::move(data), end};
}

// The samples come before the status, so that a page has the past before it draws the present.
EventPieces ViewerStream::next_change(const ServeSnapshot& snapshot) {
  if (!hello_sent_) {
    hello_sent_ = true;
    sent_history_ = snapshot.history_version;  // announce only leases that end from now on
    return format_event("hello", hello_);
  }
  if (snapshot.samples && sent_sample_ != snapshot.sample_version) {
    const bool missed = !samples_sent_ || snapshot.sample_version != sent_sample_ + 1;
    samples_sent_ = true;
    sent_sample_ = snapshot.sample_version;
    return missed ? format_event("samples", snapshot.samples)
                  : format_event("sample", snapshot.sample);
  }
  // A new viewer gets the last status even if polling fails now. A status is never sent after the
  // problem, because the page takes a status as the end of the problem.
  const bool has_problem = !snapshot.problem.empty();
  if (snapshot.stream_status && sent_status_ != snapshot.status_version &&
      (!has_problem || sent_status_ == 0)) {
    sent_status_ = snapshot.status_version;
    return format_event("status", snapshot.stream_status);
  }
  if (sees_jobs_ && snapshot.jobs && sent_jobs_ != snapshot.jobs_version) {
    sent_jobs_ = snapshot.jobs_version;
    return format_event("jobs", snapshot.jobs);
  }
  if (sent_problem_ != snapshot.problem_version) {
    sent_problem_ = snapshot.problem_version;
    if (has_problem) return format_problem(snapshot.problem);
  }
  if (sent_history_ != snapshot.history_version) {
    sent_history_ = snapshot.history_version;
    return format_event("history", share_text("{}"));
  }
  return {};
}

EventPieces ViewerStream::next_event(const ServeSnapshot& snapshot, Clock::time_point now) {
  EventPieces pieces = next_change(snapshot);
  if (pieces.empty() && now >= keepalive_due()) pieces = {share_text(": alive\n\n")};
  if (!pieces.empty()) last_sent_ = now;
  return pieces;
}

}  // namespace berth::serve
