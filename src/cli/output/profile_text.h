// The output of `berth profile` as text.
#pragma once

#include <string>
#include <vector>

#include "base/terminal.h"
#include "profile/needs_estimate.h"

namespace berth {

// A table with a line for each profile.
std::string profiles_table(const std::vector<Profile>& profiles, const Terminal& terminal);

// Everything about a profile, with its runs and remarks on measurements that are not certain.
std::string profile_page(const Profile& profile, const Terminal& terminal);

// "9.1 GiB", or "unknown" if the type has not been measured.
std::string reserve_text(const NeedsEstimate& expected);

}  // namespace berth
