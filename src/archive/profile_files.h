// What was learned on this host: each type has a file in its user's folder of the archive, which
// everybody can read and he alone writes.
//
// docs/learning.md describes it. It is replaced as a whole, under a lock of the folder, so that of
// two runs that end at once neither is lost.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "archive/profiles.h"
#include "base/result.h"

namespace berth {

// This user's of a type, or nothing.
std::optional<Profile> read_profile_file(const std::string& archive, const std::string& type);
// The other users' of a type.
std::vector<Profile> read_other_users_profile_files(const std::string& archive,
                                                    const std::string& type);
// Everybody's.
std::vector<Profile> read_all_profile_files(const std::string& archive);

Result<void> change_profile_file(const std::string& archive, const std::string& type,
                                 const std::function<void(Profile& profile)>& change);
// Whether there was one.
Result<bool> forget_profile_file(const std::string& archive, const std::string& type);

}  // namespace berth
