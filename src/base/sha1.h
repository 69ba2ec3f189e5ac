// The hash SHA-1, by which Redis identifies scripts. It is not secure; do not use it for secrets.
#pragma once

#include <string>
#include <string_view>

namespace berth {

// The hash of `text` in lower-case hexadecimal.
std::string sha1(std::string_view text);

}  // namespace berth
