// The lines of tmpfiles.d(5) that keep a harbour over reboots and out of age-based cleaning.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace berth {

// The text of berth.conf for the harbour at `path` and its archive. Both must be absolute and
// without "..". A control character in them is an Error (ErrorKind::io): a line break would start
// another line of configuration, and tmpfiles.d has no escape that every version of systemd knows.
Result<std::string> format_tmpfiles(std::string_view path, std::string_view archive);

// Did format_tmpfiles() write `text`, so that setup may replace and remove the file?
bool is_berth_tmpfiles(std::string_view text);

// Does this configuration of systemd-tmpfiles exclude the files in `path` from age-based cleaning?
// Only a hint: systemd reads only the first of several files with the same name, which the caller
// does not check.
bool excludes_from_cleaning(std::string_view configuration, const std::string& path);

}  // namespace berth
