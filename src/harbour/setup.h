// Makes the harbour root's, and keeps it over reboots and out of age-based cleaning.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "harbour/location.h"

namespace berth {

constexpr const char* kTmpfilesFolder = "/etc/tmpfiles.d";

struct SetupOptions {
  HarbourLocation where;
  std::string tmpfiles = kTmpfilesFolder;  // the folder that gets berth.conf
  bool dry_run = false;                    // say what would be done, and do nothing
};

// Whole lines for a person, not yet fit for a terminal: what was done, or would be. Empty if there
// was nothing to do. Errors are ErrorKind::harbour; what was done before one stays done, and the
// same call goes on from there. Live leases are not touched.
using Deeds = std::vector<std::string>;

Result<Deeds> set_up(const SetupOptions& options);

// Removes berth.conf and nothing else.
Result<Deeds> remove_tmpfiles(const SetupOptions& options);

}  // namespace berth
