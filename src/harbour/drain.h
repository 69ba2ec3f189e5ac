// A GPU taken out of service by whoever may: root, or the owner of the harbour.
#pragma once

#include <string>
#include <string_view>
#include <sys/types.h>

#include "schedule/plan.h"

namespace berth {

struct Drain {
  std::string uuid;
  uid_t uid = 0;
  std::string reason;
  TimePoint since;
};

std::string format_drain(const Drain& drain);
Result<Drain> parse_drain(std::string_view text);

}  // namespace berth
