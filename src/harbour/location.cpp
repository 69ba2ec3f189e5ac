// Finding, making and judging of the harbour's directory; see location.h.
#include "harbour/location.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <thread>
#include <unistd.h>

#include "base/environment.h"
#include "base/pid_namespace.h"
#include "base/private_fd.h"
#include "base/simulation.h"
#include "base/site.h"
#include "base/text.h"
#include "base/users.h"
#include "harbour/file_error.h"

namespace berth {
namespace {

constexpr mode_t kHarbourMode = 01777;

// Who held leases in a directory that was deleted needs a moment to notice, and to put them into
// the new one, before anybody is granted anything there.
constexpr std::chrono::milliseconds kGrace(200);

struct NetworkFileSystem {
  unsigned magic;
  const char* name;
};

// From the kernel's magic.h and statfs(2). flock() on these is per host, slow, or missing.
constexpr std::array kNetworkFileSystems{
    NetworkFileSystem{0x6969, "NFS"},        NetworkFileSystem{0x517B, "SMB"},
    NetworkFileSystem{0xFF534D42, "CIFS"},   NetworkFileSystem{0xFE534D42, "SMB"},
    NetworkFileSystem{0x5346414F, "AFS"},    NetworkFileSystem{0x6B414653, "AFS"},
    NetworkFileSystem{0x73757245, "Coda"},   NetworkFileSystem{0x564C, "NCP"},
    NetworkFileSystem{0x01021997, "9P"},     NetworkFileSystem{0x00C36400, "Ceph"},
    NetworkFileSystem{0x0BD00BD0, "Lustre"}, NetworkFileSystem{0x47504653, "GPFS"},
    NetworkFileSystem{0x19830326, "BeeGFS"}, NetworkFileSystem{0x01161970, "GFS2"},
    NetworkFileSystem{0x7461636F, "OCFS2"},  NetworkFileSystem{0x65735546, "FUSE"},
    NetworkFileSystem{0xAAD7AAEA, "PanFS"},  NetworkFileSystem{0x20030528, "OrangeFS"}};

UniqueFd open_directory(const HarbourLocation& where) {
  // Nobody chose the default, so nobody may lead it elsewhere; who chose BERTH_DIR may.
  const int follow = where.chosen ? 0 : O_NOFOLLOW;
  return UniqueFd(::open(where.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | follow));
}

// Made under another name and locked before it gets its own, so that nobody is faster than those
// who have a lease to put back. True if there is a directory now, whoever made it.
bool make_directory(const std::string& path, const Fill& fill) {
  std::string name = fmt::format("{}.new-XXXXXX", path);
  if (::mkdtemp(name.data()) == nullptr) return false;
  const PrivateFd made = UniqueFd(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const bool ready =
      made && ::fchmod(made.get(), kHarbourMode) == 0 && ::flock(made.get(), LOCK_EX) == 0;
  if (ready && ::renameat2(AT_FDCWD, name.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) {
    if (fill) fill(made.get());
    std::this_thread::sleep_for(kGrace);
    ::flock(made.get(), LOCK_UN);  // for whoever else has this open file, too
    return true;
  }
  const int reason = errno;
  ::rmdir(name.c_str());
  if (reason == EINVAL) {  // a file system that cannot rename without replacing
    return ::mkdir(path.c_str(), 0700) == 0 && ::chmod(path.c_str(), kHarbourMode) == 0;
  }
  errno = reason;
  return reason == EEXIST;
}

Result<void> check_directory(const std::string& path, int directory) {
  if (const auto name = network_file_system(directory)) {
    return fail(ErrorKind::harbour,
                fmt::format("{} is on a network file system ({}), where leases would not be safe; "
                            "set BERTH_DIR to a local folder",
                            in_quotes(path), *name));
  }
  struct stat about {};
  if (::fstat(directory, &about) != 0) return file_error("look at", path);
  const bool others_write = (about.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (others_write && (about.st_mode & S_ISVTX) == 0) {
    return fail(ErrorKind::harbour,
                fmt::format("anybody could delete another's lease in {}, which is writable for all "
                            "and not sticky; {} should run: chmod 1777 {}",
                            in_quotes(path), user_name(about.st_uid), in_quotes(path)));
  }
  return {};
}

// The part of the mounted file system that shows at `path`, by /proc/self/mountinfo: "/tmp/berth",
// or "/tmp/systemd-private-…/tmp/berth" where a service has a /tmp of its own.
std::string source_of(const std::string& path) {
  std::ifstream mounts("/proc/self/mountinfo");
  std::string line;
  std::string best_point;
  std::string source = path;
  while (std::getline(mounts, line)) {
    std::istringstream words(line);
    std::string id;
    std::string parent;
    std::string device;
    std::string root;
    std::string point;
    words >> id >> parent >> device >> root >> point;
    const std::string prefix = point == "/" ? "/" : fmt::format("{}/", point);
    const bool above = path == point || path.starts_with(prefix);
    if (!above || point.size() < best_point.size()) continue;
    best_point = point;
    source = path == point ? root : fmt::format("{}/{}", root, path.substr(prefix.size()));
  }
  return source;
}

// By errno, as make_directory() has left it.
tl::unexpected<Error> cannot_make(const std::string& path) {
  const int reason = errno;
  const std::string parent = std::filesystem::path(path).parent_path();
  struct stat about {};
  if (reason == ENOENT && ::stat(parent.c_str(), &about) != 0 && errno == ENOENT) {
    return fail(ErrorKind::harbour,
                fmt::format("cannot make the harbour {}: there is no folder {}; make that, or set "
                            "BERTH_DIR to another folder (the same for all users)",
                            in_quotes(path), in_quotes(parent)));
  }
  errno = reason;
  return file_error("make the harbour", path);
}

bool on_same_mount(int directory, const char* path) {
  struct statx here {};
  struct statx there {};
  return ::statx(directory, "", AT_EMPTY_PATH, STATX_MNT_ID, &here) == 0 &&
         ::statx(AT_FDCWD, path, 0, STATX_MNT_ID, &there) == 0 &&
         here.stx_mnt_id == there.stx_mnt_id;
}

}  // namespace

HarbourLocation harbour_location() {
  HarbourLocation where = default_harbour_location();
  if (const auto chosen = setting("BERTH_DIR"); !chosen.empty())
    where = {std::string(chosen), true};
  const auto set = site();
  if (!set) {
    where.wrong = set.error();
    return where;
  }
  where.host = set->host;
  if (set->url.empty()) return where;
  where.url_source = set->url_source;
  auto url = parse_redis_url(set->url);
  if (url) {
    where.url = std::move(*url);
  } else {
    where.wrong = {url.error().kind, fmt::format("{}: {}", set->url_source, url.error().message)};
  }
  return where;
}

HarbourLocation default_harbour_location() {
  if (!setting("BERTH_SIM").empty()) {
    return {fmt::format("{}.harbour", simulated_state_path()), false};
  }
  return {kDefaultHarbour, false};
}

Result<UniqueFd> open_harbour_directory(const HarbourLocation& where, const Fill& fill) {
  if (where.wrong) return tl::make_unexpected(*where.wrong);
  if (where.path.front() != '/') {
    return fail(ErrorKind::harbour,
                fmt::format("BERTH_DIR is {}, which means something else in each folder; give the "
                            "whole path",
                            in_quotes(where.path)));
  }
  UniqueFd directory = open_directory(where);
  if (!directory && errno == ENOENT) {
    if (!make_directory(where.path, fill)) return cannot_make(where.path);
    directory = open_directory(where);
  }
  if (!directory && (errno == ELOOP || errno == ENOTDIR)) {
    struct stat about {};
    const bool known = ::lstat(where.path.c_str(), &about) == 0;
    return fail(
        ErrorKind::harbour,
        fmt::format(
            "{} is not a directory{}; remove it, and berth makes one", in_quotes(where.path),
            known ? fmt::format(", but something that {} put there", user_name(about.st_uid))
                  : ""));
  }
  if (!directory) return file_error("open the harbour", where.path);
  if (auto good = check_directory(where.path, directory.get()); !good) {
    return tl::make_unexpected(good.error());
  }
  return directory;
}

std::optional<std::string> network_file_system(int directory) {
  struct statfs about {};
  if (::fstatfs(directory, &about) != 0) return std::nullopt;
  for (const auto& [magic, name] : kNetworkFileSystems) {
    if (static_cast<unsigned>(about.f_type) == magic) return name;
  }
  return std::nullopt;
}

std::optional<std::string> private_harbour(const HarbourLocation& where, int directory) {
  if (where.chosen) return std::nullopt;
  if (on_same_mount(directory, "/")) {
    struct statfs root {};
    constexpr unsigned kOverlay = 0x794C7630;
    const bool container = !in_host_pid_namespace() && ::statfs("/", &root) == 0 &&
                           static_cast<unsigned>(root.f_type) == kOverlay;
    if (!container) return std::nullopt;
    return fmt::format(
        "this looks like a container with a harbour of its own, which nobody outside sees; mount "
        "the host's: docker run -v {0}:{0}",
        where.path);
  }
  const std::string source = source_of(where.path);
  for (const char* mark : {"systemd-private-", "/tmp-inst/", "/tmp.inst/"}) {
    if (source.find(mark) == std::string::npos) continue;
    return fmt::format(
        "{} is private to this service or session ({}), so other users do not see this harbour; "
        "set BERTH_DIR to a folder that all share, or turn PrivateTmp off",
        where.path, printable(source));
  }
  return std::nullopt;
}

}  // namespace berth
