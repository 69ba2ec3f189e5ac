// Compares owners and modes; see own_files.h.
#include "base/own_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <set>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "base/text.h"
#include "base/users.h"

namespace berth {
namespace {

namespace fs = std::filesystem;

// The users who can change a file.
struct Writers {
  std::set<uid_t> users;
  std::set<gid_t> groups;
  bool everyone = false;
};

// The parts of `path` below its first `skip` components, outermost first.
std::vector<std::string> parts_below(const fs::path& path, std::ptrdiff_t skip) {
  std::vector<std::string> parts;
  fs::path now;
  for (auto part = path.begin(); part != path.end(); ++part) {
    now /= *part;
    if (skip-- <= 0) parts.push_back(now.string());
  }
  return parts;
}

Writers writers_of(const std::vector<std::string>& parts) {
  Writers all;
  all.users = {0, ::geteuid()};
  for (const std::string& part : parts) {
    struct stat about {};
    if (::stat(part.c_str(), &about) != 0) continue;
    all.users.insert(about.st_uid);
    // In a sticky folder a file can be replaced by its owner alone.
    if (S_ISDIR(about.st_mode) && (about.st_mode & S_ISVTX) != 0) continue;
    if ((about.st_mode & S_IWGRP) != 0) all.groups.insert(about.st_gid);
    if ((about.st_mode & S_IWOTH) != 0) all.everyone = true;
  }
  return all;
}

}  // namespace

std::optional<std::string> why_not_own(const std::string& own, const std::string& path) {
  std::error_code problem;
  // Links are resolved in `own` alone. A link in `path` can be trusted if its owner can be, and the
  // folders above it.
  const fs::path ours = fs::canonical(own, problem);
  const fs::path other = fs::path(path).lexically_normal();
  const auto common = std::mismatch(ours.begin(), ours.end(), other.begin(), other.end()).first;
  const auto skip = std::distance(ours.begin(), common);
  const Writers allowed = writers_of(parts_below(ours, skip));
  for (const std::string& part : parts_below(other, skip)) {
    // Both a link and what it leads to: the owner of a link can replace it.
    struct stat link {};
    struct stat about {};
    if (::lstat(part.c_str(), &link) != 0 || ::stat(part.c_str(), &about) != 0) {
      return fmt::format("{}: {}", in_quotes(part), std::strerror(errno));
    }
    for (const uid_t owner : {link.st_uid, about.st_uid}) {
      if (!allowed.users.contains(owner)) {
        return fmt::format("{} belongs to user {}", in_quotes(part), user_name(owner));
      }
    }
    if ((about.st_mode & S_IWOTH) != 0 && !allowed.everyone) {
      return fmt::format("{} can be changed by every user", in_quotes(part));
    }
    if ((about.st_mode & S_IWGRP) != 0 && !allowed.everyone &&
        !allowed.groups.contains(about.st_gid)) {
      return fmt::format("{} can be changed by the group {}", in_quotes(part), about.st_gid);
    }
  }
  return std::nullopt;
}

}  // namespace berth
