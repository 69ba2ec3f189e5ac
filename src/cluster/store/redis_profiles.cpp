// The scripts that read and replace profiles; see redis_profiles.h.
#include "cluster/store/redis_profiles.h"

#include <fmt/format.h>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "harbour/record.h"

namespace berth {
namespace {

constexpr const char* kMaxUsers = "1000";
constexpr const char* kMaxReplyBytes = "16777216";

// Returns the digest of the value, and the value, empty if it is too large. ARGV: the type, the
// largest value.
constexpr std::string_view kReadProfileScript = R"lua(
local value = redis.call('HGET', KEYS[1], ARGV[1])
if not value then return {} end
return {redis.sha1hex(value), #value <= tonumber(ARGV[2]) and value or ''}
)lua";

// Replaces the value if it has the given digest; returns whether it did. KEYS: the user's hash, the
// set of users. ARGV: the type, the digest, the new value, the user. Returns 1 also if the new
// value is there already: then the client repeats the script because the reply was lost.
constexpr std::string_view kReplaceScript = R"lua(
local value = redis.call('HGET', KEYS[1], ARGV[1])
if value ~= ARGV[3] then
  if (value and redis.sha1hex(value) or '') ~= ARGV[2] then return 0 end
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
end
redis.call('SADD', KEYS[2], ARGV[4])
return 1
)lua";

// Returns the names of other users, each followed by the user's value. KEYS: the set of users.
// ARGV: the user to leave out, the type, the largest value, the most users, the most bytes.
constexpr std::string_view kOtherUsersScript = R"lua(
local found, size = {}, 0
for _, user in ipairs(redis.call('SRANDMEMBER', KEYS[1], ARGV[4])) do
  if user ~= ARGV[1] and #user < 256 and size < tonumber(ARGV[5]) then
    local value = redis.call('HGET', KEYS[1] .. ':' .. user, ARGV[2])
    if value and #value <= tonumber(ARGV[3]) then
      found[#found + 1] = user
      found[#found + 1] = value
      size = size + #value
    end
  end
end
return found
)lua";

// Returns each type followed by its value; both are empty if they are too large. ARGV: the largest
// value, the most bytes.
constexpr std::string_view kListScript = R"lua(
local found, size = {}, 0
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local type, value = all[i], all[i + 1]
  if #type + #value > tonumber(ARGV[1]) then type, value = '', '' end
  size = size + #type + #value
  if size > tonumber(ARGV[2]) then return found end
  found[#found + 1] = type
  found[#found + 1] = value
end
return found
)lua";

// Returns the names of users. ARGV: the most users.
constexpr std::string_view kUsersScript = R"lua(
local found = {}
for _, user in ipairs(redis.call('SRANDMEMBER', KEYS[1], ARGV[1])) do
  if #user < 256 then found[#found + 1] = user end
end
return found
)lua";

std::string max_profile_size() {
  return std::to_string(kMaxProfileBytes);
}

std::string forgotten_profile_json(const std::string& type) {
  const Json json{{"type", type}, {"forgotten", true}};
  return to_utf8_json(json);
}

std::optional<Profile> parse_stored_profile(const std::string& user, const std::string& type,
                                            const std::string& text) {
  if (text == forgotten_profile_json(type)) return std::nullopt;
  auto profile = parse_profile(text);
  if (!profile || profile->type != type) return std::nullopt;
  profile->user = user;
  return profile;
}

}  // namespace

std::string RedisProfiles::users_key() const {
  return fmt::format("{}:profiles", url_.prefix);
}

std::string RedisProfiles::key(const std::string& user) const {
  return fmt::format("{}:{}", users_key(), user);
}

Result<RedisProfiles::StoredProfile> RedisProfiles::read(const std::string& user,
                                                         const std::string& type) {
  static const Script script(kReadProfileScript);
  const Reply reply = TRY(session_.run(script, {key(user)}, {type, max_profile_size()}));
  const auto& elements = reply.list();
  if (elements.size() != 2) return StoredProfile{};
  return StoredProfile{elements[0].text(), parse_stored_profile(user, type, elements[1].text())};
}

Result<bool> RedisProfiles::replace_if_unchanged(const std::string& user, const std::string& type,
                                                 const std::string& digest,
                                                 const std::string& text) {
  static const Script script(kReplaceScript);
  const Reply reply =
      TRY(session_.run(script, {key(user), users_key()}, {type, digest, text, user}));
  return reply.integer() == 1;
}

Result<bool> RedisProfiles::replace(const std::string& user, const Profile& profile,
                                    const std::string& digest) {
  // Two runs may have made the same profile. The id makes each value unique: a client that finds
  // its value in Redis knows that it has written it itself.
  Profile written = profile;
  written.change_id = make_id();
  return replace_if_unchanged(user, profile.type, digest, serialize_profile(written));
}

Result<bool> RedisProfiles::forget(const std::string& user, const std::string& type,
                                   const std::string& digest) {
  return replace_if_unchanged(user, type, digest, forgotten_profile_json(type));
}

Result<std::vector<Profile>> RedisProfiles::read_other_users(const std::string& user,
                                                             const std::string& type) {
  static const Script script(kOtherUsersScript);
  const Reply reply = TRY(session_.run(
      script, {users_key()}, {user, type, max_profile_size(), kMaxUsers, kMaxReplyBytes}));
  std::vector<Profile> profiles;
  const auto& list = reply.list();
  for (std::size_t i = 0; i + 1 < list.size(); i += 2) {
    auto profile = parse_stored_profile(list[i].text(), type, list[i + 1].text());
    if (profile) profiles.push_back(std::move(*profile));
  }
  return profiles;
}

Result<void> RedisProfiles::append_profiles(const std::string& user, ProfileList& list,
                                            std::vector<std::string>& types) {
  static const Script script(kListScript);
  const Reply reply = TRY(session_.run(script, {key(user)}, {max_profile_size(), kMaxReplyBytes}));
  const auto& pairs = reply.list();
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const std::string& type = pairs[i].text();
    types.push_back(type);
    if (pairs[i + 1].text() == forgotten_profile_json(type)) continue;
    if (auto profile = parse_stored_profile(user, type, pairs[i + 1].text())) {
      list.profiles.push_back(std::move(*profile));
    } else {
      ++list.damaged;
    }
  }
  return {};
}

Result<std::vector<std::string>> RedisProfiles::read_users() {
  static const Script script(kUsersScript);
  const Reply reply = TRY(session_.run(script, {users_key()}, {kMaxUsers}));
  std::vector<std::string> names;
  for (const Reply& name : reply.list()) names.push_back(name.text());
  return names;
}

}  // namespace berth
