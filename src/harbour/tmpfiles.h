// The lines of tmpfiles.d(5) that keep a harbour over reboots and out of age-based cleaning.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace berth {

// What berth.conf says to keep the harbour at `path` and its archive. Both must be absolute and
// without "..". A control character in them is an Error (ErrorKind::io): a line break would
// begin a line of its own, and tmpfiles.d has no escape that every version of systemd knows.
Result<std::string> format_tmpfiles(std::string_view path, std::string_view archive);

// Does `text` begin as format_tmpfiles() does, so that it may be replaced and removed?
bool is_berth_tmpfiles(std::string_view text);

// Does a configuration of systemd-tmpfiles keep what is in `path` from being cleaned by age? Only a
// hint: of several files with one name the first alone counts, and that is not looked at.
bool excludes_from_cleaning(std::string_view configuration, const std::string& path);

}  // namespace berth
