// The type of a job: what its runs have in common, so that one tells what the next will need.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace berth {

struct JobType {
  std::string name;
  std::string derivation;  // in words: how it was derived
};

// Whether other users must not see this user's command lines: `ps` does not show them here (the
// mount option hidepid), or a setting says so (BERTH_COMMANDS, or `commands` in berth.toml).
bool are_commands_hidden();

// What other users see of a command: its words, or only the program if commands are hidden.
std::string public_command(const std::vector<std::string>& words, bool hidden);

// Of a command line: the program's name, and the script or module that it is given. Arguments do
// not count: they are what differs from run to run. Of `sh -c TEXT`, that of the first command in
// TEXT that does the work. `count` GPUs make another type than one. Looks whether files exist.
//
// Everybody can read types, so values of variables (`-e NAME=VALUE`, `NAME=VALUE`), of flags such
// as --token, and passwords in URLs are never part of one. Of a hidden command only the program's
// name is readable, and a hash stands for the rest.
JobType derive_job_type(const std::vector<std::string>& command, unsigned count, bool hidden);

// Of a line of shell.
JobType derive_line_job_type(std::string_view line, unsigned count, bool hidden);

// Of a name that the user gave.
JobType make_named_job_type(std::string_view name, unsigned count);

}  // namespace berth
