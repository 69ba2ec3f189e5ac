// Which simulated server the environment names: what the stand-in driver and the harbour of that
// server must agree on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace berth {

// "4x24GiB" and the like, as opposed to the path of a file.
bool is_sim_shorthand(std::string_view sim);

// The file through which all processes of the simulated server know each other: BERTH_SIM_STATE, or
// one that follows from BERTH_SIM. Absolute where that can be said.
std::string simulated_state_path();

// A number that is the same for the same text everywhere, and for no other text that is met.
std::uint64_t hash_text(std::string_view text, std::uint64_t seed = 0);

}  // namespace berth
