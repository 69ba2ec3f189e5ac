// Files that Berth finds through the location of its own files.
//
// The Python package runs the program that was installed with it, and the program loads the
// simulated driver from its own installation. Where an installation lies below a folder in which
// other users may create files (a package vendored somewhere below /tmp), such a path can name
// another user's file. That file must never be executed.
#pragma once

#include <optional>
#include <string>

namespace berth {

// A reason why `path` cannot be trusted as a part of the same installation as `own`: a user can
// change it who can change neither `own` nor this process ("'/tmp/bin' belongs to user mallory").
// Nothing if it can be trusted.
//
// Both paths are absolute and exist. Each part of `path` below the deepest folder that both have in
// common must belong to root, to the caller, or to an owner of a part of `own` below that folder.
// If such a part is a symbolic link, this holds for the link and for the file to which it leads.
// Such a part may be writable by a group or by everyone only if a part of `own` is, too.
std::optional<std::string> describe_trust_problem(const std::string& own, const std::string& path);

}  // namespace berth
