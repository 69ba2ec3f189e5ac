// `berth mcp`: a server of the Model Context Protocol on stdin and stdout, for agents.
//
// Each message is one line of JSON-RPC 2.0. Each call of a tool runs one berth command as a child
// process, so it has the rights of this user and the meaning of that command, and several calls run
// at once. The server ends with its stdin.
#pragma once

#include "base/result.h"

namespace berth::mcp {

// Returns the exit code when stdin has ended. `allow_changes`: also offer the tools that change
// something.
Result<int> serve(bool allow_changes);

}  // namespace berth::mcp
