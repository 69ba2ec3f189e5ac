// The live stream: what one viewer has been sent of the pictures, and what comes next for him.
//
// A viewer is sent one event at a time, and the next one only when that has left: who reads slowly
// misses pictures, and never has a queue of them here.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "serve/snapshot.h"

namespace berth::serve {

// Pieces to be sent one behind the other. What is large is shared by all viewers.
using EventPieces = std::vector<SharedText>;

// One event: "event: NAME", "data: DATA", where `data` is one line.
EventPieces format_event(const char* name, SharedText data);

// One viewer; for one thread.
class ViewerStream {
 public:
  using Clock = std::chrono::steady_clock;

  // `hello` is the first thing that he is sent.
  explicit ViewerStream(SharedText hello) : hello_(std::move(hello)) {}

  // What he is to be sent now, of what is newest; empty if he has all of it.
  EventPieces next_event(const ServeSnapshot& snapshot, Clock::time_point now);

  // When to send something, so that whoever stands between does not take the silence for an end.
  Clock::time_point keepalive_due() const { return last_sent_ + kKeepaliveInterval; }

 private:
  static constexpr std::chrono::seconds kKeepaliveInterval{15};

  EventPieces next_change(const ServeSnapshot& snapshot);

  SharedText hello_;
  bool hello_sent_ = false;
  bool samples_sent_ = false;
  std::uint64_t sent_status_ = 0;
  std::uint64_t sent_sample_ = 0;
  std::uint64_t sent_problem_ = 0;
  std::uint64_t sent_history_ = 0;
  Clock::time_point last_sent_{};
};

}  // namespace berth::serve
