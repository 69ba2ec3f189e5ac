// 'berth setup': gives the harbour to root, and keeps it from reboots and age-based cleaning.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "harbour/location.h"

namespace berth {

constexpr const char* kTmpfilesFolder = "/etc/tmpfiles.d";

struct SetupOptions {
  HarbourLocation location;
  std::string tmpfiles = kTmpfilesFolder;  // the folder that gets berth.conf
  bool dry_run = false;                    // report the changes without making them
};

// One line for each change that was made, or would be made in a dry run. Empty if no change was
// needed. The lines contain paths and user names, so escape them for a terminal.
using ActionLog = std::vector<std::string>;

// Gives the harbour and its archive to root, creates them if needed, and writes berth.conf. Live
// leases stay as they are. Errors are ErrorKind::io; changes before an error stay, and the next
// call continues from there.
//
// Hostile users may own and change these directories while it runs. Nothing that a user chooses
// reaches berth.conf, and no other directory is changed.
Result<ActionLog> set_up_harbour(const SetupOptions& options);

// The command that a user runs for the setup: "sudo berth setup", with BERTH_DIR if that is set,
// since sudo does not pass it on.
std::string setup_command(const HarbourLocation& location);

// Removes berth.conf and nothing else.
Result<ActionLog> remove_tmpfiles(const SetupOptions& options);

}  // namespace berth
