// Compares owners and modes of files; see file_trust.h.
#include "base/file_trust.h"

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

// The users and groups that can change one of several files.
struct Writers {
  std::set<uid_t> users;
  std::set<gid_t> groups;
  bool everyone = false;
};

// The prefixes of `path` that are longer than `skip` components, shortest first.
std::vector<std::string> path_prefixes(const fs::path& path, std::ptrdiff_t skip) {
  std::vector<std::string> parts;
  fs::path current;
  for (auto part = path.begin(); part != path.end(); ++part) {
    current /= *part;
    if (skip-- <= 0) parts.push_back(current.string());
  }
  return parts;
}

Writers collect_writers(const std::vector<std::string>& parts) {
  Writers writers;
  writers.users = {0, ::geteuid()};
  for (const std::string& part : parts) {
    struct stat info {};
    if (::stat(part.c_str(), &info) != 0) continue;
    writers.users.insert(info.st_uid);
    // In a sticky folder only a file's owner can replace the file.
    if (S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX) != 0) continue;
    if ((info.st_mode & S_IWGRP) != 0) writers.groups.insert(info.st_gid);
    if ((info.st_mode & S_IWOTH) != 0) writers.everyone = true;
  }
  return writers;
}

}  // namespace

std::optional<std::string> describe_trust_problem(const std::string& own, const std::string& path) {
  std::error_code problem;
  // Links are resolved in `own` only. A link in `path` is trusted if its owner and the folders
  // above it are.
  const fs::path own_path = fs::canonical(own, problem);
  const fs::path checked_path = fs::path(path).lexically_normal();
  const auto common =
      std::mismatch(own_path.begin(), own_path.end(), checked_path.begin(), checked_path.end())
          .first;
  const auto skip = std::distance(own_path.begin(), common);
  const Writers allowed = collect_writers(path_prefixes(own_path, skip));
  for (const std::string& part : path_prefixes(checked_path, skip)) {
    // A link and its target are both checked: the owner of a link can replace it.
    struct stat link {};
    struct stat info {};
    if (::lstat(part.c_str(), &link) != 0 || ::stat(part.c_str(), &info) != 0) {
      return fmt::format("{}: {}", in_quotes(part), std::strerror(errno));
    }
    for (const uid_t owner : {link.st_uid, info.st_uid}) {
      if (!allowed.users.contains(owner)) {
        return fmt::format("{} belongs to user {}", in_quotes(part), user_name(owner));
      }
    }
    if ((info.st_mode & S_IWOTH) != 0 && !allowed.everyone) {
      return fmt::format("{} can be changed by every user", in_quotes(part));
    }
    if ((info.st_mode & S_IWGRP) != 0 && !allowed.everyone &&
        !allowed.groups.contains(info.st_gid)) {
      return fmt::format("{} can be changed by the group {}", in_quotes(part), info.st_gid);
    }
  }
  return std::nullopt;
}

bool is_roots_path(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    struct stat info {};
    if (::lstat(part.c_str(), &info) != 0) return errno == ENOENT || errno == ENOTDIR;
    if (info.st_uid != 0) return false;
    if (S_ISLNK(info.st_mode)) {
      std::error_code problem;
      const std::string target = fs::canonical(part, problem).string();
      if (problem || !is_roots_path(target)) return false;
    } else if ((info.st_mode & (S_IWOTH | S_ISVTX)) == S_IWOTH) {
      return false;
    }
    if (end == std::string::npos) return true;
  }
}

}  // namespace berth
