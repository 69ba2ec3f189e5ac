// Job types: the name under which Berth learns memory and run time of similar runs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace berth {

struct JobType {
  std::string name;
  std::string derivation;  // how the name was derived, as text for the user
};

// Must other users not see this user's command lines? True if `ps` does not show them on this host
// (the mount option hidepid), if a setting says so (BERTH_COMMANDS, or `commands` in berth.toml),
// or if the settings cannot be read.
bool are_commands_hidden();

// The part of a command that other users see: all words (for a line of `berth batch`, which
// /bin/sh -c runs, the line) or, if `hidden`, only the program.
std::string public_command(const std::vector<std::string>& words, bool hidden);

// The type of a command: the name of the program, and the path of its script or the name of its
// module. Arguments are not part of it, because they differ from run to run. For `sh -c TEXT`, it
// is the type of the first command in TEXT that does the work. A job on `count` GPUs has another
// type than the same job on one GPU. Checks which words are files. docs/learning.md has a table.
//
// All users can read types. So a type never contains values of variables (`-e NAME=VALUE`,
// `NAME=VALUE`), values of flags such as --token, or passwords in URLs. If commands are hidden
// (`hidden`), it contains only the program's name and a hash of the rest.
JobType derive_job_type(const std::vector<std::string>& command, unsigned count, bool hidden);

// The type of a line of shell.
JobType derive_line_job_type(std::string_view line, unsigned count, bool hidden);

// The type for a name that the user chose (--job).
JobType make_named_job_type(std::string_view name, unsigned count);

}  // namespace berth
