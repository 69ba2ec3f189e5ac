// What was learned, for all hosts: in Redis each user has a hash of his profiles by type.
//
// docs/redis.md describes it. A profile is replaced only where it is still what it was made from,
// so that of two runs that end at once, on whatever hosts, neither is lost. Whoever can write to
// Redis can write anything: what is no profile, or too large for one, is none.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "archive/profiles.h"
#include "base/result.h"
#include "cluster/redis/session.h"
#include "cluster/redis/url.h"

namespace berth {

class RedisProfiles {
 public:
  explicit RedisProfiles(const RedisUrl& url) : url_(url), session_(url) {}

  struct StoredProfile {
    std::string digest;              // of what is there; empty: nothing
    std::optional<Profile> profile;  // nothing, too, of what was forgotten or is damaged
  };
  Result<StoredProfile> read(const std::string& user, const std::string& type);
  // False: by now it is not what `digest` says, and nothing has changed.
  Result<bool> replace(const std::string& user, const Profile& profile, const std::string& digest);
  // It stays known that it was, so that no host takes an old file of its own for it.
  Result<bool> forget(const std::string& user, const std::string& type, const std::string& digest);

  // Of that type, a bounded number of them; the user's own is not among them.
  Result<std::vector<Profile>> read_other_users(const std::string& user, const std::string& type);

  // Adds a user's, and notes the types of which something is there, forgotten or not.
  Result<void> append_profiles(const std::string& user, ProfileList& list,
                               std::vector<std::string>& types);
  // Who has any; a bounded number.
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
