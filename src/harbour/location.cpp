// Finds, creates and checks the harbour's directory; see location.h.
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

#include "base/configuration.h"
#include "base/environment.h"
#include "base/private_fd.h"
#include "base/process.h"
#include "base/simulation.h"
#include "base/text.h"
#include "base/users.h"
#include "harbour/file_error.h"
#include "harbour/record.h"
#include "harbour/safe_directory.h"

namespace berth {
namespace {

// The time for which a new directory stays locked after its creation. Clients that held leases in a
// deleted directory notice the loss and put their leases into the new one, before a client can be
// granted GPUs there.
constexpr std::chrono::milliseconds kRecoveryDelay(200);

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

UniqueFd open_directory(const HarbourLocation& location) {
  // The default path must not be a symbolic link: another user may have made it. BERTH_DIR is the
  // choice of this user, so it may be one.
  const int follow = location.is_custom ? 0 : O_NOFOLLOW;
  return UniqueFd(::open(location.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | follow));
}

// The error for errno. `parent` is the folder in which the harbour at `path` was to be created.
tl::unexpected<Error> harbour_creation_error(const std::string& path, const std::string& parent) {
  const int reason = errno;
  struct stat file_info {};
  if (reason == ENOENT && ::stat(parent.c_str(), &file_info) != 0 && errno == ENOENT) {
    return fail(
        ErrorKind::io,
        fmt::format("cannot create the harbour {}: there is no folder {}; create that folder, "
                    "or set BERTH_DIR to another one (the same for all users)",
                    in_quotes(path), in_quotes(parent)));
  }
  errno = reason;
  return file_error("create the harbour", path);
}

// Creates a directory under a temporary name, locks it, renames it, and keeps the lock for
// kRecoveryDelay. So clients put lost leases back (without the lock) before another client decides.
// `flags` are those of renameat2(). On failure it removes the directory and returns false, with
// errno.
bool make_locked_directory(int parent, const std::string& name, const std::string& temporary_name,
                           unsigned flags, const DirectoryInitializer& initialize) {
  const PrivateFd made = make_directory_at(parent, temporary_name, kHarbourMode);
  if (made && ::flock(made.get(), LOCK_EX) == 0 &&
      ::renameat2(parent, temporary_name.c_str(), parent, name.c_str(), flags) == 0) {
    if (initialize) initialize(made.get());
    std::this_thread::sleep_for(kRecoveryDelay);
    ::flock(made.get(), LOCK_UN);  // also for forks that have this open file
    return true;
  }
  const int reason = errno;
  if (made) ::unlinkat(parent, temporary_name.c_str(), AT_REMOVEDIR);
  errno = reason;
  return false;
}

// On success the directory exists; another client may have created it.
Result<void> make_directory(const std::string& path, const DirectoryInitializer& initialize) {
  const auto end = path.find_last_not_of('/');
  const auto slash = path.rfind('/', end);
  const std::string folder = slash == 0 ? "/" : path.substr(0, slash);
  const std::string name = path.substr(slash + 1, end - slash);
  // The following calls use this descriptor, so they stay in this folder even if another folder
  // gets its name meanwhile.
  const UniqueFd parent(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat file_info {};
  if (!parent || ::fstat(parent.get(), &file_info) != 0)
    return harbour_creation_error(path, folder);
  if (others_can_rename(file_info, ::geteuid())) {
    const bool own = file_info.st_uid == 0 || file_info.st_uid == ::geteuid();
    return fail(
        ErrorKind::io,
        fmt::format(
            "cannot create the harbour {}: {} can replace files in {}; set BERTH_DIR to a path "
            "in a folder that only root can change",
            in_quotes(path), own ? std::string("other users") : user_name(file_info.st_uid),
            in_quotes(folder)));
  }
  if (!make_harbour_directory(parent.get(), name, initialize))
    return harbour_creation_error(path, folder);
  return {};
}

Result<void> check_directory(const std::string& path, int directory) {
  if (const auto name = detect_network_file_system(directory)) {
    return fail(ErrorKind::io,
                fmt::format("{} is on a network file system ({}), where leases would not be safe; "
                            "set BERTH_DIR to a local folder",
                            in_quotes(path), *name));
  }
  struct stat file_info {};
  if (::fstat(directory, &file_info) != 0) return file_error("inspect", path);
  const bool others_write = (file_info.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (others_write && (file_info.st_mode & S_ISVTX) == 0) {
    return fail(
        ErrorKind::io,
        fmt::format("{} is writable for other users but not sticky, so users could delete each "
                    "other's leases; {} should run: chmod 1777 {}",
                    in_quotes(path), user_name(file_info.st_uid), in_quotes(path)));
  }
  if (TRY(has_access_list(directory, path))) {
    return fail(ErrorKind::io,
                fmt::format("{} has an access control list, which can hide leases from some users; "
                            "{} should run: setfacl -bk {}",
                            in_quotes(path), user_name(file_info.st_uid), in_quotes(path)));
  }
  return {};
}

// The path of `path` inside its mounted file system, from /proc/self/mountinfo: "/tmp/berth", or
// "/tmp/systemd-private-…/tmp/berth" in a service with a private /tmp.
std::string find_mount_source(const std::string& path) {
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
    const bool is_above = path == point || path.starts_with(prefix);
    if (!is_above || point.size() < best_point.size()) continue;
    best_point = point;
    source = path == point ? root : fmt::format("{}/{}", root, path.substr(prefix.size()));
  }
  return source;
}

bool is_on_same_mount(int directory, const char* path) {
  struct statx here {};
  struct statx there {};
  return ::statx(directory, "", AT_EMPTY_PATH, STATX_MNT_ID, &here) == 0 &&
         ::statx(AT_FDCWD, path, 0, STATX_MNT_ID, &there) == 0 &&
         here.stx_mnt_id == there.stx_mnt_id;
}

}  // namespace

HarbourLocation harbour_location() {
  HarbourLocation location = default_harbour_location();
  if (const auto chosen = get_env_or_empty("BERTH_DIR"); !chosen.empty())
    location = {std::string(chosen), true};
  const auto configured = read_configuration();
  if (!configured) {
    location.configuration_error = configured.error();
    return location;
  }
  location.host = configured->host;
  if (configured->url.empty()) return location;
  location.url_source = configured->url_source;
  auto url = parse_redis_url(configured->url);
  if (url) {
    location.url = std::move(*url);
  } else {
    location.configuration_error = {
        url.error().kind, fmt::format("{}: {}", configured->url_source, url.error().message)};
  }
  return location;
}

HarbourLocation default_harbour_location() {
  if (!get_env_or_empty("BERTH_SIM").empty()) {
    return {fmt::format("{}.harbour", simulated_state_path()), false};
  }
  return {kDefaultHarbour, false};
}

Result<UniqueFd> open_harbour_directory(const HarbourLocation& location,
                                        const DirectoryInitializer& initialize) {
  if (location.configuration_error) return tl::make_unexpected(*location.configuration_error);
  if (location.path.front() != '/') {
    return fail(ErrorKind::io,
                fmt::format("BERTH_DIR={} is a relative path; write an absolute path",
                            in_quotes(location.path)));
  }
  UniqueFd directory = open_directory(location);
  if (!directory && errno == ENOENT) {
    TRY(make_directory(location.path, initialize));
    directory = open_directory(location);
  }
  if (!directory && (errno == ELOOP || errno == ENOTDIR)) {
    struct stat file_info {};
    const bool known = ::lstat(location.path.c_str(), &file_info) == 0;
    return fail(
        ErrorKind::io,
        fmt::format("{} is not a directory{}; {}", in_quotes(location.path),
                    known ? fmt::format(" (owner: {})", user_name(file_info.st_uid)) : "",
                    location.path == kDefaultHarbour ? "'sudo berth setup' moves it aside"
                                                     : "set BERTH_DIR to the path of a directory"));
  }
  if (!directory) return file_error("open the harbour", location.path);
  TRY(check_directory(location.path, directory.get()));
  return directory;
}

bool make_harbour_directory(int parent, const std::string& name,
                            const DirectoryInitializer& initialize) {
  const std::string temporary_name = fmt::format("{}.new-{}", name, make_id());
  if (make_locked_directory(parent, name, temporary_name, RENAME_NOREPLACE, initialize))
    return true;
  // EINVAL: the file system does not support RENAME_NOREPLACE.
  if (errno == EINVAL && make_directory_at(parent, name, kHarbourMode)) return true;
  return errno == EEXIST;
}

bool replace_with_harbour_directory(int parent, const std::string& name,
                                    const std::string& new_name) {
  return make_locked_directory(parent, name, new_name, RENAME_EXCHANGE, {});
}

std::optional<std::string> detect_network_file_system(int directory) {
  struct statfs file_info {};
  if (::fstatfs(directory, &file_info) != 0) return std::nullopt;
  for (const auto& [magic, name] : kNetworkFileSystems) {
    if (static_cast<unsigned>(file_info.f_type) == magic) return name;
  }
  return std::nullopt;
}

std::optional<std::string> detect_private_harbour(const HarbourLocation& location, int directory) {
  if (location.is_custom) return std::nullopt;
  if (is_on_same_mount(directory, "/")) {
    struct statfs root {};
    constexpr unsigned kOverlay = 0x794C7630;
    const bool container = !is_in_host_pid_namespace() && ::statfs("/", &root) == 0 &&
                           static_cast<unsigned>(root.f_type) == kOverlay;
    if (!container) return std::nullopt;
    return fmt::format(
        "this container seems to have a harbour of its own, which the host and other containers do "
        "not see; mount the harbour of the host: docker run -v {0}:{0}",
        location.path);
  }
  const std::string source = find_mount_source(location.path);
  for (const char* marker : {"systemd-private-", "/tmp-inst/", "/tmp.inst/"}) {
    if (source.find(marker) == std::string::npos) continue;
    return fmt::format(
        "{} is private to this service or session ({}), so other users do not see this harbour; "
        "set BERTH_DIR to a folder that all users share, or turn PrivateTmp off",
        location.path, printable(source));
  }
  return std::nullopt;
}

}  // namespace berth
