// Identifies the simulated server that the environment selects (BERTH_SIM, BERTH_SIM_STATE). The
// simulated driver and the harbour both use this, so that they agree on the server.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace berth {

// Whether `sim` is a shorthand such as "4x24GiB", not the path of a file.
bool is_sim_shorthand(std::string_view sim);

// The file that all processes of the simulated server share: BERTH_SIM_STATE, or a name derived
// from BERTH_SIM. The path is absolute unless the working directory is unknown.
std::string simulated_state_path();

// How long a process sleeps at most before it checks by itself what a ring would have told it:
// `interval`, or on a simulated server (BERTH_SIM) the seconds in BERTH_SIM_AUDIT. Tests of rings
// make it long, so that the audit does not hide a lost ring.
std::chrono::seconds audit_interval(std::chrono::seconds interval);

// A 64-bit hash that is the same in every process and version, with few collisions. Not secure.
std::uint64_t hash_text(std::string_view text, std::uint64_t seed = 0);

}  // namespace berth
