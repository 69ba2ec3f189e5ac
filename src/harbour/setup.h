// Makes the harbour root's, and keeps it over reboots and out of age-based cleaning.
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
  bool dry_run = false;                    // say what would be done, and do nothing
};

// One line for each change that was made, or would be; a terminal must escape them. Empty if there
// was nothing to do. Errors are ErrorKind::io; changes before an error stay, and the same call
// continues from there. Live leases are not touched.
using ActionLog = std::vector<std::string>;

// Makes the harbour and its archive root's, and writes berth.conf. Another user's influence ends
// with the names and modes that setup replaces: nothing that a user chooses reaches berth.conf, and
// no directory but these two is changed.
Result<ActionLog> set_up_harbour(const SetupOptions& options);

// The command that a user runs for it: "sudo berth setup", with BERTH_DIR if that is set, since
// sudo does not pass it on.
std::string setup_command(const HarbourLocation& location);

// Removes berth.conf and nothing else.
Result<ActionLog> remove_tmpfiles(const SetupOptions& options);

}  // namespace berth
