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

namespace berth {

// Pieces to be sent one behind the other. What is large is shared by all viewers.
using StreamPieces = std::vector<SharedText>;

// One event: "event: NAME", "data: DATA", where `data` is one line.
StreamPieces stream_event(const char* name, SharedText data);

// One viewer; for one thread.
class Viewer {
 public:
  using Clock = std::chrono::steady_clock;

  // `hello` is the first thing that he is sent.
  explicit Viewer(SharedText hello) : hello_(std::move(hello)) {}

  // What he is to be sent now, of what is newest; empty if he has all of it.
  StreamPieces next(const ServeSnapshot& picture, Clock::time_point now);

  // When to send something, so that whoever stands between does not take the silence for an end.
  Clock::time_point alive_until() const { return sent_ + kSilence; }

 private:
  static constexpr std::chrono::seconds kSilence{15};

  StreamPieces news(const ServeSnapshot& picture);

  SharedText hello_;
  bool greeted_ = false;
  bool has_samples_ = false;
  std::uint64_t status_ = 0;
  std::uint64_t sample_ = 0;
  std::uint64_t problem_ = 0;
  std::uint64_t history_ = 0;
  Clock::time_point sent_{};
};

}  // namespace berth
