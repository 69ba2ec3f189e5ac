// The whole berth program: from the arguments to the exit code.
#pragma once

namespace berth {

// Parses the arguments, runs the command, and reports an error as one line on stderr. Throws only
// what the standard library throws when memory runs out.
int run_program(int argc, const char* const* argv);

}  // namespace berth
