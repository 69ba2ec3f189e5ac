// The profiles that count here: those of this host's files or, in a harbour of several hosts, those
// in Redis. There what this user's old files say counts where Redis has nothing.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "archive/profiles.h"
#include "base/result.h"
#include "harbour/location.h"

namespace berth {

bool is_own_profile(const Profile& profile);

// This user's profile of a type, or nothing. With a server that is away, what this host's files
// say: nobody who wants to run is kept from it.
std::optional<Profile> read_profile(const HarbourLocation& harbour, const std::string& type);
// What another user's runs needed, for people to read: that of the most runs, without what its
// owner has set by hand. Anybody can write anything into their own profile, so nothing is reserved
// by it.
std::optional<Profile> find_other_users_profile(const HarbourLocation& harbour,
                                                const std::string& type);

Result<ProfileList> list_own_profiles(const HarbourLocation& harbour);
Result<ProfileList> list_all_profiles(const HarbourLocation& harbour);

// Changes this user's profile of a type, which is made where there is none. `change` is called
// again where somebody else was faster.
Result<void> change_profile(const HarbourLocation& harbour, const std::string& type,
                            const std::function<void(Profile& profile)>& change);
// Whether there was one.
Result<bool> forget_profile(const HarbourLocation& harbour, const std::string& type);

}  // namespace berth
