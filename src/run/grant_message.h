// The message that tells a user which GPUs a job was granted, after how long, and what `--mem auto`
// reserves on them.
#pragma once

#include <optional>
#include <string>

#include "archive/profile.h"
#include "lease/lease.h"
#include "profile/learning.h"

namespace berth {

// "granted GPU 2 after 3h 12m"; with --mem auto, "granted GPU 2, 6.1 GiB reserved: up to 5.5 GiB in
// 12 earlier runs, plus 10%". `waited`: the wait was shown.
std::string format_grant(Lease& lease, bool waited, const std::optional<ProfileOptions>& options);

// "6.1 GiB reserved: up to 5.5 GiB in 12 earlier runs, plus 10%"; empty without --mem auto.
std::string explain_reservation(Lease& lease, const std::optional<ProfileOptions>& options);

// What --mem auto reserves for the lease, and why. `profile`: of its job type, if there is one.
std::string explain_auto_memory(const Record& lease, const std::optional<Profile>& profile,
                                const ProfileOptions& options);

}  // namespace berth
