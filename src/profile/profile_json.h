// The JSON of `berth profile`; docs/json.md describes it.
#pragma once

#include <string>
#include <vector>

#include "archive/profiles.h"

namespace berth {

// One object per line.
std::string profiles_json(const std::vector<Profile>& profiles);

}  // namespace berth
