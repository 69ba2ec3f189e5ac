// Files or Redis; see profile_store.h.
#include "profile/profile_store.h"

#include <algorithm>
#include <fmt/format.h>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include "archive/profile_files.h"
#include "archive/user_folder.h"
#include "base/users.h"
#include "cluster/store/redis_profiles.h"

namespace berth {
namespace {

const std::string& own_user_name() {
  return user_name(::geteuid());
}

ProfileList sort_profiles(ProfileList list) {
  std::sort(list.profiles.begin(), list.profiles.end(), [](const Profile& a, const Profile& b) {
    return std::tie(a.user, a.uid, a.type) < std::tie(b.user, b.uid, b.type);
  });
  return list;
}

std::vector<Profile> read_own_files(const HarbourLocation& harbour) {
  auto files = read_all_profile_files(archive_path(harbour));
  std::erase_if(files, [](const Profile& one) { return one.uid != ::geteuid(); });
  return files;
}

// Of this user, also what only this host's files know.
Result<void> list_own_and_old(RedisProfiles& server, const HarbourLocation& harbour,
                              ProfileList& list) {
  std::vector<std::string> types;
  if (auto listed = server.append_profiles(own_user_name(), list, types); !listed) return listed;
  for (Profile& old : read_own_files(harbour)) {
    if (std::find(types.begin(), types.end(), old.type) != types.end()) continue;
    old.user = own_user_name();
    list.profiles.push_back(std::move(old));
  }
  return {};
}

// What is to be changed: as Redis has it or, where it has nothing, as this host's file does.
Result<RedisProfiles::StoredProfile> read_current(RedisProfiles& server,
                                                  const HarbourLocation& harbour,
                                                  const std::string& type) {
  auto stored = server.read(own_user_name(), type);
  if (stored && stored->digest.empty()) {
    stored->profile = read_profile_file(archive_path(harbour), type);
  }
  return stored;
}

// Reads and writes until nobody comes in between. `change` gives whether it has written.
Result<void> retry_until_written(const std::function<Result<bool>()>& change) {
  constexpr int kMaxTries = 1000;
  for (int i = 0; i < kMaxTries; ++i) {
    const auto written = change();
    if (!written) return tl::make_unexpected(written.error());
    if (*written) return {};
  }
  return fail(ErrorKind::io, "the profile is changed again and again; find out who does it");
}

tl::unexpected<Error> unavailable_error(const RedisUrl& url) {
  return fail(ErrorKind::unavailable,
              fmt::format("{} did not answer a moment ago", format_redacted_url(url)));
}

}  // namespace

bool is_own_profile(const Profile& profile) {
  return profile.user.empty() ? profile.uid == ::geteuid() : profile.user == own_user_name();
}

std::optional<Profile> read_profile(const HarbourLocation& harbour, const std::string& type) {
  if (harbour.url) {
    RedisProfiles server(*harbour.url);
    if (!server.was_recently_unavailable()) {
      if (auto stored = read_current(server, harbour, type)) return std::move(stored->profile);
    }
  }
  return read_profile_file(archive_path(harbour), type);
}

std::optional<Profile> find_other_users_profile(const HarbourLocation& harbour,
                                                const std::string& type) {
  std::vector<Profile> others;
  if (harbour.url) {
    RedisProfiles server(*harbour.url);
    if (server.was_recently_unavailable()) return std::nullopt;
    if (auto found = server.read_other_users(own_user_name(), type)) others = std::move(*found);
  } else {
    others = read_other_users_profile_files(archive_path(harbour), type);
  }
  std::optional<Profile> best;
  for (Profile& profile : others) {
    profile.set_memory.reset();
    profile.set_time.reset();
    if (!estimate_needs(profile).memory) continue;
    if (!best || profile.runs.size() > best->runs.size()) best = std::move(profile);
  }
  return best;
}

Result<ProfileList> list_own_profiles(const HarbourLocation& harbour) {
  ProfileList list;
  if (!harbour.url) {
    list.profiles = read_own_files(harbour);
    return sort_profiles(std::move(list));
  }
  RedisProfiles server(*harbour.url);
  if (auto listed = list_own_and_old(server, harbour, list); !listed) {
    return tl::make_unexpected(listed.error());
  }
  return sort_profiles(std::move(list));
}

Result<ProfileList> list_all_profiles(const HarbourLocation& harbour) {
  ProfileList list;
  if (!harbour.url) {
    list.profiles = read_all_profile_files(archive_path(harbour));
    return sort_profiles(std::move(list));
  }
  RedisProfiles server(*harbour.url);
  const auto users = server.read_users();
  if (!users) return tl::make_unexpected(users.error());
  Result<void> listed = list_own_and_old(server, harbour, list);
  for (const std::string& user : *users) {
    std::vector<std::string> types;
    if (listed && user != own_user_name()) listed = server.append_profiles(user, list, types);
  }
  if (!listed) return tl::make_unexpected(listed.error());
  return sort_profiles(std::move(list));
}

Result<void> change_profile(const HarbourLocation& harbour, const std::string& type,
                            const std::function<void(Profile& profile)>& change) {
  if (!harbour.url) return change_profile_file(archive_path(harbour), type, change);
  RedisProfiles server(*harbour.url);
  if (server.was_recently_unavailable()) return unavailable_error(*harbour.url);
  return retry_until_written([&]() -> Result<bool> {
    const auto before = read_current(server, harbour, type);
    if (!before) return tl::make_unexpected(before.error());
    Profile profile = before->profile.value_or(Profile{});
    profile.type = type;
    change(profile);
    return server.replace(own_user_name(), profile, before->digest);
  });
}

Result<bool> forget_profile(const HarbourLocation& harbour, const std::string& type) {
  if (!harbour.url) return forget_profile_file(archive_path(harbour), type);
  RedisProfiles server(*harbour.url);
  bool known = false;
  const auto forgotten = retry_until_written([&]() -> Result<bool> {
    const auto before = read_current(server, harbour, type);
    if (!before) return tl::make_unexpected(before.error());
    known = before->profile.has_value();
    return server.forget(own_user_name(), type, before->digest);
  });
  if (!forgotten) return tl::make_unexpected(forgotten.error());
  return known;
}

}  // namespace berth
