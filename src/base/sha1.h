// SHA-1, by which Redis names scripts. Not for secrets.
#pragma once

#include <string>
#include <string_view>

namespace berth {

// In hexadecimal, lower case.
std::string sha1(std::string_view text);

}  // namespace berth
