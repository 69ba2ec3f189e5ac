// Reads and writes profile files; see profile_files.h.
#include "archive/profile_files.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "archive/user_folder.h"
#include "harbour/file_error.h"

namespace berth {
namespace {

constexpr std::string_view kPrefix = "profile-";
constexpr std::string_view kSuffix = ".json";
constexpr std::size_t kMaxProfiles = 4096;  // read for one user at most

// A hash, since a type may contain any character.
std::string profile_file_name(std::string_view type) {
  constexpr std::uint64_t kBasis = 14695981039346656037ULL;  // FNV-1a
  constexpr std::uint64_t kPrime = 1099511628211ULL;
  std::uint64_t hash = kBasis;
  for (const char letter : type) hash = (hash ^ static_cast<unsigned char>(letter)) * kPrime;
  return fmt::format("{}{:016x}{}", kPrefix, hash, kSuffix);
}

std::optional<Profile> read_profile_at(int folder, const std::string& name, uid_t uid) {
  const UniqueFd file = open_inside(folder, name.c_str(), O_RDONLY);
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  std::string content(
      std::min<std::size_t>(static_cast<std::size_t>(status.st_size), kMaxProfileBytes), '\0');
  const auto bytes_read = ::pread(file.get(), content.data(), content.size(), 0);
  if (bytes_read < 0) return std::nullopt;
  content.resize(static_cast<std::size_t>(bytes_read));
  auto profile = parse_profile(content);
  if (profile) profile->uid = uid;
  return profile;
}

// Two types can have the same hash if a user constructs them. Then the one that was written last
// has the file.
std::optional<Profile> read_profile_of_type(int folder, const std::string& type, uid_t uid) {
  auto profile = read_profile_at(folder, profile_file_name(type), uid);
  if (profile && profile->type != type) profile.reset();
  return profile;
}

void append_profiles(const UserFolder& folder, ProfileList& list) {
  const int copy = ::openat(folder.directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return;
  std::size_t files = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(copy), ::closedir);
  while (const dirent* entry = listing ? ::readdir(listing.get()) : nullptr) {
    const std::string name = entry->d_name;
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    if (++files > kMaxProfiles) break;
    if (auto profile = read_profile_at(folder.directory.get(), name, folder.uid)) {
      list.profiles.push_back(std::move(*profile));
    } else {
      ++list.damaged;
    }
  }
}

}  // namespace

std::optional<Profile> read_profile_file(const std::string& archive, const std::string& type) {
  const auto folder = find_own_folder(archive);
  return folder ? read_profile_of_type(folder->directory.get(), type, folder->uid) : std::nullopt;
}

std::vector<Profile> read_other_users_profile_files(const std::string& archive,
                                                    const std::string& type) {
  std::vector<Profile> others;
  for (const UserFolder& folder : open_user_folders(archive)) {
    if (folder.uid == ::geteuid()) continue;
    auto profile = read_profile_of_type(folder.directory.get(), type, folder.uid);
    if (profile) others.push_back(std::move(*profile));
  }
  return others;
}

ProfileList read_own_profile_files(const std::string& archive) {
  ProfileList own;
  if (const auto folder = find_own_folder(archive)) append_profiles(*folder, own);
  return own;
}

ProfileList read_all_profile_files(const std::string& archive) {
  ProfileList all;
  for (const UserFolder& folder : open_user_folders(archive)) append_profiles(folder, all);
  return all;
}

Result<void> change_profile_file(const std::string& archive, const std::string& type,
                                 const std::function<void(Profile& profile)>& change) {
  const UserFolder folder = TRY(open_own_folder(archive));
  const UniqueFd lock = TRY(lock_folder(folder));
  Profile profile =
      read_profile_of_type(folder.directory.get(), type, folder.uid).value_or(Profile{});
  profile.type = type;
  change(profile);
  return replace_file(folder, profile_file_name(type), serialize_profile(profile));
}

Result<bool> forget_profile_file(const std::string& archive, const std::string& type) {
  const auto folder = find_own_folder(archive);
  if (!folder || !read_profile_of_type(folder->directory.get(), type, folder->uid)) return false;
  if (::unlinkat(folder->directory.get(), profile_file_name(type).c_str(), 0) == 0) return true;
  if (errno == ENOENT) return false;
  return file_error("remove the profile in", folder->path);
}

}  // namespace berth
