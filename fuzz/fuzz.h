// The interface of every fuzzer: fuzz() is called with each input, and check() ends the run if a
// property does not hold.
#pragma once

#include <string_view>

namespace berth {

// Defined by each NAME_fuzz.cpp.
void fuzz(std::string_view input);

// Aborts if the property does not hold. libFuzzer then saves the input.
void check(bool holds, const char* property);

// Safe for a terminal: without control characters, escape sequences and bytes that are not UTF-8.
bool is_printable(std::string_view text);

}  // namespace berth
