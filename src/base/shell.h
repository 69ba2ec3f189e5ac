// Quotes text for POSIX shells.
#pragma once

#include <string>
#include <string_view>

namespace berth {

// `text` in single quotes: one word without characters that are special to a shell.
std::string single_quote(std::string_view text);

// The same, except that text without special characters stays unquoted. For commands that are shown
// to users.
std::string shell_quote(std::string_view text);

}  // namespace berth
