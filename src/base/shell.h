// Quoting for POSIX shells.
#pragma once

#include <string>
#include <string_view>

namespace berth {

// `text` in single quotes: one word, in which nothing is special to a shell.
std::string single_quote(std::string_view text);

// The same, but text that needs no quotes stays as it is: for commands that people read.
std::string shell_quote(std::string_view text);

}  // namespace berth
