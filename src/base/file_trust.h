// Checks whether a file can be trusted as part of the same installation as Berth's own files.
//
// The Python package runs the program that was installed with it, and the program loads the
// simulated driver from its own installation. Where an installation lies below a folder in which
// other users may create files (a package vendored somewhere below /tmp), such a path can name
// another user's file. That file must never be executed. And whether a path belongs to root alone.
#pragma once

#include <optional>
#include <string>

namespace berth {

// The reason why `path` cannot be trusted as a part of the same installation as `own`
// ("'/tmp/bin' belongs to user mallory"), or nullopt if it can. `path` cannot be trusted if a user
// can change it without being able to change `own` or this process.
//
// Both paths are absolute and exist. Each component of `path` below the deepest folder that both
// paths share must belong to root, to the caller, or to an owner of a component of `own` below that
// folder. For a symbolic link this holds for the link and for its target. A component may be
// writable by a group or by all users only if a component of `own` is, too.
std::optional<std::string> describe_trust_problem(const std::string& own, const std::string& path);

// Whether only root can put another file in the place of `path`, which is absolute: all its folders
// and links, and those that its links lead to, belong to root, and not every user can write in
// them. The last parts of the path may not exist yet. For root with the environment of a user (sudo
// -E).
bool is_roots_path(const std::string& path);

}  // namespace berth
