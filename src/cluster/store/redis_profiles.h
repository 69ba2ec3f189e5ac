// The profiles of all hosts: in Redis each user has a hash of profiles by job type.
//
// docs/redis.md describes it. A profile is replaced only if it has not changed since it was read,
// so that neither of two runs that end at the same time, on one host or on two, is lost. Every
// client with the URL can write anything: a value that is too large, or not a profile, is ignored.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "archive/profile.h"
#include "base/result.h"
#include "cluster/redis/session.h"
#include "cluster/redis/url.h"

namespace berth {

// Not thread-safe: one thread at a time. Errors are those of RedisConnection.
class RedisProfiles {
 public:
  explicit RedisProfiles(const RedisUrl& url) : url_(url), session_(url) {}

  struct StoredProfile {
    std::string digest;              // of the stored value; empty: there is no value
    std::optional<Profile> profile;  // nullopt also if it was forgotten or is damaged
  };
  Result<StoredProfile> read(const std::string& user, const std::string& type);
  // False: the stored value no longer has the digest `digest`, and nothing was changed. The same
  // for forget().
  Result<bool> replace(const std::string& user, const Profile& profile, const std::string& digest);
  // Replaces the profile by a mark that it was forgotten, so that no host uses its own old file.
  Result<bool> forget(const std::string& user, const std::string& type, const std::string& digest);

  // The profiles of that type of users other than `user`; a bounded number of them.
  Result<std::vector<Profile>> read_other_users(const std::string& user, const std::string& type);

  // Appends the user's profiles to `list`. Appends to `types` every type for which there is a
  // value, forgotten and damaged ones included.
  Result<void> append_profiles(const std::string& user, ProfileList& list,
                               std::vector<std::string>& types);
  // The names of users with profiles; a bounded number of them.
  Result<std::vector<std::string>> read_users();

  bool was_recently_unavailable() const { return session_.was_recently_unavailable(); }

 private:
  std::string users_key() const;
  std::string key(const std::string& user) const;
  Result<bool> replace_if_unchanged(const std::string& user, const std::string& type,
                                    const std::string& digest, const std::string& text);

  RedisUrl url_;
  RedisSession session_;
};

}  // namespace berth
