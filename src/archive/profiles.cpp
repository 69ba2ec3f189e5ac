// The files of what was learned; see profiles.h.
#include "archive/profiles.h"

#include <algorithm>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "harbour/file_error.h"

namespace berth {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;

constexpr std::string_view kPrefix = "profile-";
constexpr std::string_view kSuffix = ".json";
constexpr std::size_t kLargestFile = 256 << 10;

// Of 50 runs the largest may be an accident; of fewer, none is.
constexpr std::size_t kQuantilePct = 98;
constexpr double kLeastMargin = 0.02;
constexpr double kMargin = 0.10;  // after one run
constexpr double kMostMargin = 0.25;
// Also for who did not use its GPU so far.
constexpr Bytes kLeastReserve = mib(512);
// A run time is a promise to who waits: not before it is known to be one.
constexpr std::size_t kTimedRuns = 3;
constexpr double kTimeMargin = 1.25;
constexpr int kTimeSpread = 4;

// A type may be any text, a file's name may not.
std::string file_name(std::string_view type) {
  constexpr std::uint64_t kBasis = 14695981039346656037ULL;  // FNV-1a
  constexpr std::uint64_t kPrime = 1099511628211ULL;
  std::uint64_t hash = kBasis;
  for (const char letter : type) hash = (hash ^ static_cast<unsigned char>(letter)) * kPrime;
  return fmt::format("{}{:016x}{}", kPrefix, hash, kSuffix);
}

template <class Time>
std::int64_t to_ms(Time time) {
  return std::chrono::floor<milliseconds>(time).count();
}

Json optional_bytes(const std::optional<Bytes>& size) {
  return size ? Json(size->count) : Json(nullptr);
}

std::string write_profile(const Profile& profile) {
  Json runs = Json::array();
  for (const ProfileRun& run : profile.runs) {
    Json one{{"ended_ms", to_ms(run.ended.time_since_epoch())},
             {"peak", optional_bytes(run.peak)},
             {"lasted_ms", run.lasted.count()}};
    if (run.out_of_memory) one["out_of_memory"] = true;
    if (run.doubtful) one["doubtful"] = true;
    runs.push_back(std::move(one));
  }
  Json json{{"type", profile.type}, {"command", profile.command}, {"failures", profile.failures}};
  if (profile.set_memory) json["set_memory"] = profile.set_memory->count;
  if (profile.set_time) json["set_time_ms"] = profile.set_time->count();
  if (!profile.framework.empty()) json["framework"] = profile.framework;
  json["runs"] = std::move(runs);
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<std::uint64_t> number(const Json& object, const char* key) {
  constexpr std::uint64_t kLargest = 1ULL << 53;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  return std::min(found->get<std::uint64_t>(), kLargest);
}

std::optional<Bytes> bytes(const Json& object, const char* key) {
  const auto count = number(object, key);
  return count ? std::optional(Bytes{*count}) : std::nullopt;
}

std::optional<milliseconds> duration(const Json& object, const char* key) {
  constexpr std::uint64_t kLongestMs = 1ULL << 41;
  const auto count = number(object, key);
  return count ? std::optional(milliseconds(std::min(*count, kLongestMs))) : std::nullopt;
}

std::string text(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool flag(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

// Nothing if it is damaged: then it is learned anew.
std::optional<Profile> parse_profile(std::string_view bytes_read, uid_t uid) {
  const Json json = Json::parse(bytes_read, nullptr, false);
  if (!json.is_object() || text(json, "type").empty()) return std::nullopt;
  Profile profile;
  profile.type = text(json, "type");
  profile.uid = uid;
  profile.command = text(json, "command");
  profile.set_memory = bytes(json, "set_memory");
  profile.set_time = duration(json, "set_time_ms");
  profile.failures = static_cast<unsigned>(
      std::min<std::uint64_t>(number(json, "failures").value_or(0), kMostRuns));
  profile.framework = text(json, "framework");
  const auto runs = json.find("runs");
  if (runs == json.end() || !runs->is_array()) return profile;
  for (const Json& one : *runs) {
    if (!one.is_object() || profile.runs.size() >= kMostRuns) continue;
    profile.runs.push_back({TimePoint(duration(one, "ended_ms").value_or(milliseconds(0))),
                            bytes(one, "peak"),
                            duration(one, "lasted_ms").value_or(milliseconds(0)),
                            flag(one, "out_of_memory"), flag(one, "doubtful")});
  }
  return profile;
}

std::optional<Profile> read_file(int folder, const std::string& name, uid_t uid) {
  const UniqueFd file(
      ::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat about {};
  if (!file || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) return std::nullopt;
  std::string content(std::min<std::size_t>(static_cast<std::size_t>(about.st_size), kLargestFile),
                      '\0');
  const auto got = ::pread(file.get(), content.data(), content.size(), 0);
  if (got < 0) return std::nullopt;
  content.resize(static_cast<std::size_t>(got));
  return parse_profile(content, uid);
}

// Two types may have the same file name, if somebody looks for such: then the later one has it.
std::optional<Profile> read_type(int folder, const std::string& type, uid_t uid) {
  auto profile = read_file(folder, file_name(type), uid);
  if (profile && profile->type != type) profile.reset();
  return profile;
}

std::vector<Profile> read_folder(const UserFolder& folder) {
  std::vector<Profile> profiles;
  const int copy = ::openat(folder.directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return profiles;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(copy), ::closedir);
  while (const dirent* entry = listing ? ::readdir(listing.get()) : nullptr) {
    const std::string name = entry->d_name;
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    if (auto profile = read_file(folder.directory.get(), name, folder.uid)) {
      profiles.push_back(std::move(*profile));
    }
  }
  return profiles;
}

// This user's own folder, if there is one; makes nothing.
std::optional<UserFolder> existing_folder(const std::string& archive) {
  auto folders = user_folders(archive);
  const auto own = std::find_if(folders.begin(), folders.end(),
                                [](const UserFolder& folder) { return folder.uid == ::geteuid(); });
  if (own == folders.end()) return std::nullopt;
  return std::optional<UserFolder>(std::move(*own));
}

Result<void> replace_file(const UserFolder& folder, const std::string& name,
                          const std::string& content) {
  const std::string temporary = fmt::format(".{}.{}", name, ::getpid());
  const int at = folder.directory.get();
  const UniqueFd file(
      ::openat(at, temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
  const bool written = file && ::write(file.get(), content.data(), content.size()) ==
                                   static_cast<ssize_t>(content.size());
  if (written && ::renameat(at, temporary.c_str(), at, name.c_str()) == 0) return {};
  auto error = file_error("write what was learned in", folder.path);
  ::unlinkat(at, temporary.c_str(), 0);
  return error;
}

// The last peaks, in their order by size.
std::vector<std::uint64_t> peaks_of(const Profile& profile) {
  std::vector<std::uint64_t> peaks;
  for (const ProfileRun& run : profile.runs) {
    if (run.peak) peaks.push_back(run.peak->count);
  }
  std::sort(peaks.begin(), peaks.end());
  return peaks;
}

void estimate_memory(const Profile& profile, Estimate& result) {
  const auto peaks = peaks_of(profile);
  if (peaks.empty()) return;
  const auto count = static_cast<double>(peaks.size());
  const std::size_t rank = (kQuantilePct * peaks.size() + 99) / 100;  // rounded up
  const std::uint64_t quantile = peaks[rank - 1];
  const double spread = quantile == 0
                            ? 0
                            : static_cast<double>(quantile - std::min(peaks.front(), quantile)) /
                                  static_cast<double>(quantile);
  // What has varied so far may vary further, less so the longer it was watched.
  result.margin = std::clamp(std::max(kMargin, spread) / count, kLeastMargin, kMostMargin);
  result.quantile = Bytes{quantile};
  const auto with_margin =
      static_cast<std::uint64_t>(static_cast<double>(quantile) * (1 + result.margin));
  const std::uint64_t mib_up = (with_margin + mib(1).count - 1) / mib(1).count;
  result.memory = Bytes{std::max(mib_up * mib(1).count, kLeastReserve.count)};
}

void estimate_time(const Profile& profile, Estimate& result) {
  std::vector<milliseconds> times;
  for (const ProfileRun& run : profile.runs) {
    if (!run.out_of_memory) times.push_back(run.lasted);
  }
  if (times.size() < kTimedRuns) return;
  std::sort(times.begin(), times.end());
  const milliseconds longest = times.back();
  if (longest > kTimeSpread * times[times.size() / 2]) return;
  const double ms = static_cast<double>(longest.count()) * kTimeMargin;
  result.time = milliseconds(std::max<std::int64_t>(static_cast<std::int64_t>(ms), 1));
}

}  // namespace

Estimate estimate(const Profile& profile) {
  Estimate result;
  estimate_memory(profile, result);
  estimate_time(profile, result);
  if (profile.set_memory) result.memory = profile.set_memory;
  if (profile.set_time) result.time = profile.set_time;
  return result;
}

void learn(Profile& profile, ProfileRun run) {
  if (!run.out_of_memory) profile.failures = 0;
  profile.runs.push_back(run);
  if (profile.runs.size() > kMostRuns) profile.runs.erase(profile.runs.begin());
}

std::optional<Profile> read_profile(const std::string& archive, const std::string& type) {
  // Without a listing where it is almost always: somebody waits for this.
  const std::string usual = fmt::format("{}/{}", archive, ::geteuid());
  const UniqueFd folder(::open(usual.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about {};
  if (folder && ::fstat(folder.get(), &about) == 0 && about.st_uid == ::geteuid()) {
    return read_type(folder.get(), type, ::geteuid());
  }
  const auto own = existing_folder(archive);
  return own ? read_type(own->directory.get(), type, own->uid) : std::nullopt;
}

std::optional<Profile> others_profile(const std::string& archive, const std::string& type) {
  std::optional<Profile> best;
  for (const UserFolder& folder : user_folders(archive)) {
    if (folder.uid == ::geteuid()) continue;
    auto profile = read_type(folder.directory.get(), type, folder.uid);
    if (!profile || !estimate(*profile).memory) continue;
    if (!best || profile->runs.size() > best->runs.size()) best = std::move(profile);
  }
  return best;
}

std::vector<Profile> all_profiles(const std::string& archive) {
  std::vector<Profile> all;
  for (const UserFolder& folder : user_folders(archive)) {
    for (Profile& profile : read_folder(folder)) all.push_back(std::move(profile));
  }
  std::sort(all.begin(), all.end(), [](const Profile& a, const Profile& b) {
    return std::tie(a.uid, a.type) < std::tie(b.uid, b.type);
  });
  return all;
}

Result<void> change_profile(const std::string& archive, const std::string& type,
                            const std::function<void(Profile& profile)>& change) {
  const auto folder = own_folder(archive);
  if (!folder) return tl::make_unexpected(folder.error());
  while (::flock(folder->directory.get(), LOCK_EX) != 0 && errno == EINTR) {
  }  // dropped with the folder
  Profile profile = read_type(folder->directory.get(), type, folder->uid).value_or(Profile{});
  profile.type = type;
  change(profile);
  return replace_file(*folder, file_name(type), write_profile(profile));
}

Result<bool> forget_profile(const std::string& archive, const std::string& type) {
  const auto folder = existing_folder(archive);
  if (!folder || !read_type(folder->directory.get(), type, folder->uid)) return false;
  if (::unlinkat(folder->directory.get(), file_name(type).c_str(), 0) == 0) return true;
  if (errno == ENOENT) return false;
  return file_error("forget what was learned in", folder->path);
}

}  // namespace berth
