// Files or Redis; see known_profiles.h.
#include "profile/known_profiles.h"

#include <algorithm>
#include <fmt/format.h>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include "archive/folder.h"
#include "archive/profile_files.h"
#include "base/users.h"
#include "cluster/store/redis_profiles.h"

namespace berth {
namespace {

const std::string& own_name() {
  return user_name(::geteuid());
}

ProfileList in_order(ProfileList list) {
  std::sort(list.profiles.begin(), list.profiles.end(), [](const Profile& a, const Profile& b) {
    return std::tie(a.user, a.uid, a.type) < std::tie(b.user, b.uid, b.type);
  });
  return list;
}

std::vector<Profile> own_files(const HarbourLocation& harbour) {
  auto files = profile_files(archive_path(harbour));
  std::erase_if(files, [](const Profile& one) { return one.uid != ::geteuid(); });
  return files;
}

// Of this user, also what only this host's files know.
Result<void> list_own(RedisProfiles& server, const HarbourLocation& harbour, ProfileList& list) {
  std::vector<std::string> types;
  if (auto listed = server.list(own_name(), list, types); !listed) return listed;
  for (Profile& old : own_files(harbour)) {
    if (std::find(types.begin(), types.end(), old.type) != types.end()) continue;
    old.user = own_name();
    list.profiles.push_back(std::move(old));
  }
  return {};
}

// What is to be changed: as Redis has it or, where it has nothing, as this host's file does.
Result<RedisProfiles::Stored> current(RedisProfiles& server, const HarbourLocation& harbour,
                                      const std::string& type) {
  auto stored = server.read(own_name(), type);
  if (stored && stored->mark.empty()) {
    stored->profile = read_profile_file(archive_path(harbour), type);
  }
  return stored;
}

// Reads and writes until nobody comes in between. `change` gives whether it has written.
Result<void> until_written(const std::function<Result<bool>()>& change) {
  constexpr int kMostTries = 1000;
  for (int i = 0; i < kMostTries; ++i) {
    const auto written = change();
    if (!written) return tl::make_unexpected(written.error());
    if (*written) return {};
  }
  return fail(ErrorKind::io, "the profile is changed again and again; find out who does it");
}

tl::unexpected<Error> away(const RedisUrl& url) {
  return fail(ErrorKind::unavailable, fmt::format("{} did not answer a moment ago", shown(url)));
}

}  // namespace

bool is_own(const Profile& profile) {
  return profile.user.empty() ? profile.uid == ::geteuid() : profile.user == own_name();
}

std::optional<Profile> read_profile(const HarbourLocation& harbour, const std::string& type) {
  if (harbour.url) {
    RedisProfiles server(*harbour.url);
    if (!server.was_just_away()) {
      if (auto stored = current(server, harbour, type)) return std::move(stored->profile);
    }
  }
  return read_profile_file(archive_path(harbour), type);
}

std::optional<Profile> others_profile(const HarbourLocation& harbour, const std::string& type) {
  std::vector<Profile> others;
  if (harbour.url) {
    RedisProfiles server(*harbour.url);
    if (server.was_just_away()) return std::nullopt;
    if (auto found = server.others(own_name(), type)) others = std::move(*found);
  } else {
    others = others_profile_files(archive_path(harbour), type);
  }
  std::optional<Profile> best;
  for (Profile& profile : others) {
    profile.set_memory.reset();
    profile.set_time.reset();
    if (!estimate(profile).memory) continue;
    if (!best || profile.runs.size() > best->runs.size()) best = std::move(profile);
  }
  return best;
}

Result<ProfileList> own_profiles(const HarbourLocation& harbour) {
  ProfileList list;
  if (!harbour.url) {
    list.profiles = own_files(harbour);
    return in_order(std::move(list));
  }
  RedisProfiles server(*harbour.url);
  if (auto listed = list_own(server, harbour, list); !listed) {
    return tl::make_unexpected(listed.error());
  }
  return in_order(std::move(list));
}

Result<ProfileList> all_profiles(const HarbourLocation& harbour) {
  ProfileList list;
  if (!harbour.url) {
    list.profiles = profile_files(archive_path(harbour));
    return in_order(std::move(list));
  }
  RedisProfiles server(*harbour.url);
  const auto users = server.users();
  if (!users) return tl::make_unexpected(users.error());
  Result<void> listed = list_own(server, harbour, list);
  for (const std::string& user : *users) {
    std::vector<std::string> types;
    if (listed && user != own_name()) listed = server.list(user, list, types);
  }
  if (!listed) return tl::make_unexpected(listed.error());
  return in_order(std::move(list));
}

Result<void> change_profile(const HarbourLocation& harbour, const std::string& type,
                            const std::function<void(Profile& profile)>& change) {
  if (!harbour.url) return change_profile_file(archive_path(harbour), type, change);
  RedisProfiles server(*harbour.url);
  if (server.was_just_away()) return away(*harbour.url);
  return until_written([&]() -> Result<bool> {
    const auto before = current(server, harbour, type);
    if (!before) return tl::make_unexpected(before.error());
    Profile profile = before->profile.value_or(Profile{});
    profile.type = type;
    change(profile);
    return server.replace(own_name(), profile, before->mark);
  });
}

Result<bool> forget_profile(const HarbourLocation& harbour, const std::string& type) {
  if (!harbour.url) return forget_profile_file(archive_path(harbour), type);
  RedisProfiles server(*harbour.url);
  bool known = false;
  const auto forgotten = until_written([&]() -> Result<bool> {
    const auto before = current(server, harbour, type);
    if (!before) return tl::make_unexpected(before.error());
    known = before->profile.has_value();
    return server.forget(own_name(), type, before->mark);
  });
  if (!forgotten) return tl::make_unexpected(forgotten.error());
  return known;
}

}  // namespace berth
