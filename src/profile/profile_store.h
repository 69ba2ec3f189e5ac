// Reads and changes profiles where they are stored: in files of this host (archive/profile_files.h)
// or, for several hosts, on the server (cluster/store/redis_profiles.h).
//
// With a server, this user's files on this host (from before it had a server) count for types of
// which the server has no profile.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "archive/profile.h"
#include "base/result.h"
#include "harbour/location.h"

namespace berth {

// This user's profile of a type; nullopt if there is none. If the server does not answer, the
// profile of this host's files: a job must be able to start without the server.
std::optional<Profile> read_profile(const HarbourLocation& harbour, const std::string& type);
// The profile of the other user with the most runs of this type, without the values that its owner
// has set. Only for display: users can write anything into their own profile, so no reservation may
// rely on it.
std::optional<Profile> find_other_users_profile(const HarbourLocation& harbour,
                                                const std::string& type);

// Sorted by user and type.
Result<ProfileList> list_own_profiles(const HarbourLocation& harbour);
Result<ProfileList> list_all_profiles(const HarbourLocation& harbour);

// Changes this user's profile of a type (a new one if there is none). `change` is called again if
// another process changed the profile at the same time.
Result<void> change_profile(const HarbourLocation& harbour, const std::string& type,
                            const std::function<void(Profile& profile)>& change);
// Removes this user's profile of a type. Returns whether there was one.
Result<bool> forget_profile(const HarbourLocation& harbour, const std::string& type);

// The output of `berth profile --json`, one object per line; docs/json.md describes it.
std::string profiles_json(const std::vector<Profile>& profiles);

}  // namespace berth
