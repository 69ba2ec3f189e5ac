// What `berth profile` prints for people.
#pragma once

#include <string>
#include <vector>

#include "archive/profiles.h"
#include "base/terminal.h"

namespace berth {

// A table, a line for each.
std::string profiles_table(const std::vector<Profile>& profiles, const Terminal& terminal);

// All about one, with its runs and what is to be doubted.
std::string profile_page(const Profile& profile, const Terminal& terminal);

// "9.1 GiB", or that the type is to be measured yet.
std::string reserve_text(const NeedsEstimate& expected);

}  // namespace berth
