// The whole program: from the arguments to the exit code.
#pragma once

namespace berth {

// Parses, runs, and reports errors as one line on stderr. Throws nothing but what the standard
// library throws when memory runs out.
int run_program(int argc, const char* const* argv);

}  // namespace berth
