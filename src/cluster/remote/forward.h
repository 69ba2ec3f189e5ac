// Runs a command about a job on the host on which the job was started, by ssh as the same user.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace berth {

// Set in the environment of a forwarded command, which forwards nothing itself: a host that Redis
// knows by two names would otherwise connect to itself without end.
constexpr const char* kForwardedVariable = "BERTH_FORWARDED";

// The command line for ssh that runs `berth` with these words.
std::string forwarded_berth_command(const std::vector<std::string>& words);

// Runs `words` ("logs", "--follow") with `id` on the host on which this user's job was started, and
// returns its exit code. With `terminal`, the keys of this terminal reach it. nullopt: the job was
// started on this host, or no host has it. ErrorKind::usage: the configuration does not permit a
// connection to that host.
Result<std::optional<int>> forward_job_command(const std::vector<std::string>& words,
                                               const std::string& id, bool terminal);

}  // namespace berth
