// The profile files of this host: one file for each job type, in the user's folder of the archive.
//
// All users can read the files, and only their owner can write them. A change replaces the whole
// file under a lock of the folder, so that no run is lost when two runs end at the same time.
// docs/learning.md describes the files. profile/profile_store.h also covers profiles on the server.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "archive/profile.h"
#include "base/result.h"

namespace berth {

// The profile of this process's user; nullopt if there is none.
std::optional<Profile> read_profile_file(const std::string& archive, const std::string& type);
// The profiles of all other users for this type.
std::vector<Profile> read_other_users_profile_files(const std::string& archive,
                                                    const std::string& type);
// All profiles of this process's user, and of all users; not sorted.
ProfileList read_own_profile_files(const std::string& archive);
ProfileList read_all_profile_files(const std::string& archive);

// Calls `change` with this user's profile of the type (or a new one), and writes the result.
Result<void> change_profile_file(const std::string& archive, const std::string& type,
                                 const std::function<void(Profile& profile)>& change);
// Removes this user's profile of the type. Returns whether there was one.
Result<bool> forget_profile_file(const std::string& archive, const std::string& type);

}  // namespace berth
