// The event stream of one viewer: which data it has, and which event comes next.
//
// The next event is made only when the previous one was sent. So a viewer that reads slowly skips
// snapshots, and the server never queues events for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "serve/snapshot.h"

namespace berth::serve {

// The text of an event, in pieces; viewers share the large ones.
using EventPieces = std::vector<SharedText>;

// A server-sent event: "event: NAME", "data: DATA". `data` must be one line.
EventPieces format_event(const char* name, SharedText data);

// Used by one thread.
class ViewerStream {
 public:
  using Clock = std::chrono::steady_clock;

  // `hello` is the data of the first event. `sees_jobs`: the viewer has the token.
  explicit ViewerStream(SharedText hello, bool sees_jobs = false)
      : hello_(std::move(hello)), sees_jobs_(sees_jobs) {}

  // The event to send now, given the newest snapshot; empty if the viewer has all of it. The caller
  // must send every event that this returns.
  EventPieces next_event(const ServeSnapshot& snapshot, Clock::time_point now);

  // When next_event() returns a keepalive comment if there is no other event. Without keepalives a
  // proxy may close a silent connection.
  Clock::time_point keepalive_due() const { return last_sent_ + kKeepaliveInterval; }

 private:
  static constexpr std::chrono::seconds kKeepaliveInterval{15};

  EventPieces next_change(const ServeSnapshot& snapshot);

  SharedText hello_;
  bool sees_jobs_;
  bool hello_sent_ = false;
  bool samples_sent_ = false;
  std::uint64_t sent_status_ = 0;
  std::uint64_t sent_jobs_ = 0;
  std::uint64_t sent_sample_ = 0;
  std::uint64_t sent_problem_ = 0;
  std::uint64_t sent_history_ = 0;
  Clock::time_point last_sent_{};
};

}  // namespace berth::serve
