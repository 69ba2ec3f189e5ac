// A drain: the mark that takes a GPU out of service. Only root and the harbour's owner may set it.
#pragma once

#include <string>
#include <string_view>
#include <sys/types.h>

#include "schedule/plan.h"

namespace berth {

struct Drain {
  std::string uuid;
  uid_t uid = 0;  // the user who drained the GPU; parse_drain() does not set it
  std::string reason;
  TimePoint since;
};

// As JSON; docs/harbour-protocol.md describes it. The error says what is wrong.
std::string format_drain(const Drain& drain);
Result<Drain> parse_drain(std::string_view text);

}  // namespace berth
