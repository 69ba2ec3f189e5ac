// Errors of the file system, in words: the one place that turns errno into an Error of the harbour.
#pragma once

#include <string_view>

#include "base/result.h"

namespace berth {

// "cannot make a bell in /tmp/berth: No space left on device; free some space". `directory` is
// named by what the kernel calls it.
tl::unexpected<Error> file_error(std::string_view what, int directory);
tl::unexpected<Error> file_error(std::string_view what, std::string_view path);

// Is this errno of opening a file one that whoever made the file can bring about, and only for his
// own (no permission, another type put there in between, F_SETLEASE)? Then it says nothing of the
// others. Whatever else goes wrong means that nobody can say.
bool is_caused_by_owner(int reason);

}  // namespace berth
