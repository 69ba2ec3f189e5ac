// What `berth serve` answers to /api/v1/timeline; docs/json.md describes it.
#pragma once

#include <string>

#include "archive/timeline.h"

namespace berth {

// A document in one line, and a newline, in ASCII.
std::string timeline_json(const Timeline& timeline);

}  // namespace berth
