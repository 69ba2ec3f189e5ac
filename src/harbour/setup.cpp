// Sets the harbour up as root; see setup.h.
#include "harbour/setup.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include "base/shell.h"
#include "base/text.h"
#include "base/users.h"
#include "harbour/file_names.h"
#include "harbour/record.h"
#include "harbour/safe_directory.h"
#include "harbour/tmpfiles.h"

namespace berth {
namespace {

constexpr mode_t kFolderMode = 0755;
constexpr mode_t kSettingsFileMode = 0644;
constexpr const char* kTmpfilesConfName = "berth.conf";

// Is it a folder that other programs use, and that must not be excluded from age-based cleaning?
bool is_shared_folder(const struct stat& file_info) {
  for (const char* path : {"/", "/tmp", "/var/tmp", "/dev/shm", "/run", "/run/lock", "/home"}) {
    struct stat one {};
    if (::stat(path, &one) == 0 && is_same_file(one, file_info)) return true;
  }
  return false;
}

// Is `name` a name that Berth uses in a harbour?
bool is_harbour_name(std::string_view name) {
  return name == kArchiveInHarbour || has_harbour_prefix(name);
}

// Is `name` a name that Berth uses for a user's folder in an archive: "1000" or "1000-2"?
bool is_archive_name(std::string_view name) {
  return name.find_first_not_of("0123456789-") == std::string_view::npos;
}

// A directory that setup gives to root.
struct TargetDirectory {
  enum class Kind { harbour, archive };

  TrustedPath path;
  Kind kind;
  // The name belongs to Berth, so setup may move away what a user has put there.
  bool replaceable;

  bool is_expected_name(std::string_view name) const {
    return kind == Kind::harbour ? is_harbour_name(name) : is_archive_name(name);
  }

  // Returns true if the directory exists now, even if another process created it.
  bool create() const {
    if (kind == Kind::harbour) return make_harbour_directory(path.parent.get(), path.name);
    return make_directory_at(path.parent.get(), path.name, kHarbourMode) || errno == EEXIST;
  }
};

class HarbourSetup {
 public:
  explicit HarbourSetup(const SetupOptions& options)
      : options_(options), path_(options.location.path) {}

  Result<ActionLog> run() {
    // For a relative path, report the same error as other commands.
    if (path_.front() != '/') {
      return tl::make_unexpected(open_harbour_directory(options_.location).error());
    }
    TrustedPath at = TRY(resolve(path_));
    const bool is_default = path_ == kDefaultHarbour;
    const std::string harbour = at.canonical;
    const TargetDirectory target{std::move(at), TargetDirectory::Kind::harbour, is_default};
    const UniqueFd directory = TRY(set_up_directory(target));
    const TargetDirectory archive = TRY(archive_target(is_default, harbour, directory.get()));
    if (archive.path.parent) TRY(set_up_directory(archive));
    TRY(write_tmpfiles_conf(harbour, archive.path.canonical));
    return std::move(actions_);
  }

  Result<ActionLog> remove_tmpfiles_conf() {
    if (!TRY(read_tmpfiles_conf())) return std::move(actions_);
    if (!options_.dry_run && ::unlink(tmpfiles_conf_path().c_str()) != 0)
      return make_error("remove", tmpfiles_conf_path());
    log("removed", "remove", in_quotes(tmpfiles_conf_path()));
    return std::move(actions_);
  }

 private:
  void log(std::string_view done, std::string_view would, const std::string& what) {
    actions_.push_back(options_.dry_run ? fmt::format("would {} {}", would, what)
                                        : fmt::format("{} {}", done, what));
  }

  // The error for errno. file_error() would advise 'berth doctor' and 'berth setup'.
  static tl::unexpected<Error> make_error(std::string_view what, std::string_view path) {
    const int reason = errno;
    return fail(ErrorKind::io,
                fmt::format("cannot {} {}: {}", what, in_quotes(path), std::strerror(reason)));
  }

  // The path for berth.conf. It consists of what the administrator wrote and of root's symbolic
  // links. It is never taken from an open file, since the owner of that could rename it.
  Result<TrustedPath> resolve(const std::string& path) const {
    TrustedPath at = TRY(resolve_trusted_path(path));
    // Fail before the first change if berth.conf cannot express the path.
    TRY(format_tmpfiles(at.canonical, ""));
    return at;
  }

  // The archive of the default harbour has a path of its own; any other is in the harbour, which
  // belongs to root by now. Without a parent if the harbour does not exist (in a dry run).
  Result<TargetDirectory> archive_target(bool is_default, const std::string& harbour,
                                         int directory) const {
    if (is_default) {
      TrustedPath at = TRY(resolve(kDefaultArchive));
      return TargetDirectory{std::move(at), TargetDirectory::Kind::archive, true};
    }
    return TargetDirectory{{fmt::format("{}/{}", harbour, kArchiveInHarbour),
                            UniqueFd(::fcntl(directory, F_DUPFD_CLOEXEC, 0)), kArchiveInHarbour},
                           TargetDirectory::Kind::archive,
                           true};
  }

  // Gives the directory to root, with mode 1777 and without access control lists, and returns it
  // open. Empty if it does not exist (in a dry run).
  Result<UniqueFd> set_up_directory(const TargetDirectory& target) {
    constexpr int kMaxReplacements = 3;
    for (int i = 0; i < kMaxReplacements; ++i) {
      UniqueFd directory = TRY(open_or_create(target));
      if (directory && TRY(check_usable(target, directory.get()))) {
        TRY(set_owner_and_mode(target, directory.get()));
        return directory;
      }
      if (options_.dry_run) return UniqueFd();
    }
    return fail(ErrorKind::io,
                fmt::format("another process keeps replacing {}; stop that process, then run setup "
                            "again",
                            in_quotes(target.path.canonical)));
  }

  // Empty if setup replaced something that was not a directory, or if the directory does not exist
  // (in a dry run).
  Result<UniqueFd> open_or_create(const TargetDirectory& target) {
    const std::string& path = target.path.canonical;
    const auto open_directory = [&target] {
      return UniqueFd(::openat(target.path.parent.get(), target.path.name.c_str(),
                               O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    };
    UniqueFd directory = open_directory();
    if (!directory && errno == ENOENT) {
      if (!options_.dry_run) {
        if (!target.create()) return make_error("create", path);
        directory = open_directory();
        if (!directory) return make_error("open", path);
      }
      log("created", "create", fmt::format("{} (owner root, mode 1777)", in_quotes(path)));
      return directory;
    }
    if (directory) return directory;
    if (errno != ELOOP && errno != ENOTDIR) return make_error("open", path);
    struct stat file_info {};
    if (::fstatat(target.path.parent.get(), target.path.name.c_str(), &file_info,
                  AT_SYMLINK_NOFOLLOW) != 0) {
      return make_error("inspect", path);
    }
    const char* const kind = S_ISLNK(file_info.st_mode) ? "a symbolic link" : "not a directory";
    if (target.replaceable && file_info.st_uid != 0) {
      TRY(replace(target, fmt::format("it is {} (owner: {})", kind, user_name(file_info.st_uid))));
      return UniqueFd();
    }
    return fail(
        ErrorKind::io,
        fmt::format(
            "{} is {} (owner: {}); {}", in_quotes(path), kind, user_name(file_info.st_uid),
            target.replaceable ? "move it away" : "set BERTH_DIR to the path of a directory"));
  }

  // Can the directory be used? False if it could not, and setup replaced it.
  Result<bool> check_usable(const TargetDirectory& target, int directory) {
    const std::string& path = target.path.canonical;
    if (const auto network = detect_network_file_system(directory)) {
      return fail(
          ErrorKind::io,
          fmt::format("{} is on a network file system ({}), where leases would not be safe; "
                      "set BERTH_DIR to a local folder",
                      in_quotes(path), *network));
    }
    struct stat file_info {};
    if (::fstat(directory, &file_info) != 0) return make_error("inspect", path);
    // If only the owner could write to the directory, names that Berth does not use show that the
    // owner uses it for something else. If all users could write, any user may have made them.
    const bool open_to_all = (file_info.st_mode & S_IWOTH) != 0;
    const bool other_use = !open_to_all && has_other_names(target, directory);
    if (!other_use && !is_shared_folder(file_info)) return true;
    if (target.replaceable && file_info.st_uid != 0) {
      TRY(replace(target, fmt::format("it belongs to {}, has the mode {:04o} and "
                                      "contains other files",
                                      user_name(file_info.st_uid), file_info.st_mode & 07777)));
      return false;
    }
    return fail(
        ErrorKind::io,
        fmt::format("{} {}, and setup would open it to all users; set BERTH_DIR to a folder for "
                    "berth alone",
                    in_quotes(path), other_use ? "contains other files" : "is a system folder"));
  }

  // Exchanges it for a new directory in one step: between two steps its owner could interfere.
  Result<void> replace(const TargetDirectory& target, const std::string& why) {
    const std::string aside = fmt::format(".moved-{}", make_id());
    if (!options_.dry_run &&
        !replace_with_harbour_directory(target.path.parent.get(), target.path.name,
                                        fmt::format("{}{}", target.path.name, aside))) {
      return make_error("replace", target.path.canonical);
    }
    log("moved", "move",
        fmt::format("{} to {}, with a new directory in its place, because {}",
                    in_quotes(target.path.canonical), in_quotes(target.path.canonical + aside),
                    why));
    return {};
  }

  // Calls `visit` for each entry of the directory until it returns false. Limited, since the owner
  // may have filled the directory.
  static void for_each_name(int directory, const std::function<bool(std::string_view)>& visit) {
    constexpr int kMaxNames = 100'000;
    const int own = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const std::unique_ptr<DIR, int (*)(DIR*)> listing(own < 0 ? nullptr : ::fdopendir(own),
                                                      ::closedir);
    if (!listing) return;
    for (int i = 0; i < kMaxNames; ++i) {
      const dirent* const entry = ::readdir(listing.get());
      if (entry == nullptr) return;
      const std::string_view name = entry->d_name;
      if (name != "." && name != ".." && !visit(name)) return;
    }
  }

  static bool has_other_names(const TargetDirectory& target, int directory) {
    bool found = false;
    for_each_name(directory, [&](std::string_view name) {
      found = !target.is_expected_name(name);
      return !found;
    });
    return found;
  }

  // Uses the descriptor, so that it changes the directory that was checked. Changes the owner
  // first: from then on no other user can rename the directory or change its mode.
  Result<void> set_owner_and_mode(const TargetDirectory& target, int directory) {
    const std::string& path = target.path.canonical;
    struct stat file_info {};
    if (::fstat(directory, &file_info) != 0) return make_error("inspect", path);
    if (file_info.st_uid != 0) {
      if (!options_.dry_run && ::fchown(directory, 0, 0) != 0) return make_error("chown", path);
      log("gave", "give",
          fmt::format("{} to root ({} {})", in_quotes(path),
                      options_.dry_run ? "owner:" : "it belonged to", user_name(file_info.st_uid)));
    }
    // The former owner may have renamed it before that, and changed its mode.
    TRY(check_name(target, directory));
    if (file_info.st_uid != 0 && target.kind == TargetDirectory::Kind::harbour)
      log_drains(directory, file_info.st_uid);
    if (TRY(has_access_list(directory, path))) {
      if (!options_.dry_run && !remove_access_lists(directory)) {
        return make_error("remove the access control list of", path);
      }
      log("removed", "remove", fmt::format("the access control list of {}", in_quotes(path)));
    }
    if (::fstat(directory, &file_info) != 0) return make_error("inspect", path);
    if ((file_info.st_mode & 07777) != kHarbourMode) {
      if (!options_.dry_run && ::fchmod(directory, kHarbourMode) != 0)
        return make_error("chmod", path);
      log("set", "set",
          fmt::format("the mode of {} to 1777 ({} {:04o})", in_quotes(path),
                      options_.dry_run ? "mode now:" : "it was", file_info.st_mode & 07777));
    }
    return {};
  }

  // Does the path still name the open directory?
  Result<void> check_name(const TargetDirectory& target, int directory) const {
    struct stat opened {};
    struct stat named {};
    if (::fstat(directory, &opened) == 0 &&
        ::fstatat(target.path.parent.get(), target.path.name.c_str(), &named,
                  AT_SYMLINK_NOFOLLOW) == 0 &&
        is_same_file(opened, named)) {
      return {};
    }
    return fail(ErrorKind::io, fmt::format("another process moved {} while setup ran; run "
                                           "setup again",
                                           in_quotes(target.path.canonical)));
  }

  // Logs the drains of the former owner, which end now: only root and the owner may drain.
  void log_drains(int directory, uid_t former_owner) {
    constexpr std::size_t kMaxDrains = 64;
    std::vector<std::string> uuids;
    for_each_name(directory, [&](std::string_view name) {
      struct stat file_info {};
      const std::string file(name);
      if (name.starts_with(kDrainPrefix) &&
          ::fstatat(directory, file.c_str(), &file_info, AT_SYMLINK_NOFOLLOW) == 0 &&
          file_info.st_uid == former_owner) {
        uuids.push_back(file.substr(kDrainPrefix.size()));
      }
      return uuids.size() < kMaxDrains;
    });
    for (const std::string& uuid : uuids) {
      log("ended", "end",
          fmt::format("the drain of {} by {}; to drain the GPU again, use 'sudo berth drain'", uuid,
                      user_name(former_owner)));
    }
  }

  std::string tmpfiles_conf_path() const {
    return fmt::format("{}/{}", options_.tmpfiles, kTmpfilesConfName);
  }

  // The text of berth.conf; nullopt if it does not exist. An Error if setup did not write it.
  Result<std::optional<std::string>> read_tmpfiles_conf() const {
    const std::string name = tmpfiles_conf_path();
    const UniqueFd fd(::open(name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!fd && errno == ENOENT) return std::nullopt;
    if (!fd && errno != ELOOP) return make_error("read", name);
    std::string text(kMaxRecordSize, '\0');
    const auto length = fd ? ::read(fd.get(), text.data(), text.size()) : 0;
    if (length < 0) return make_error("read", name);
    text.resize(static_cast<std::size_t>(length));
    if (!is_berth_tmpfiles(text)) {
      return fail(ErrorKind::io,
                  fmt::format("{} was not written by berth setup; move it away", in_quotes(name)));
    }
    return text;
  }

  Result<void> write_tmpfiles_conf(const std::string& harbour, const std::string& archive) {
    const std::string text = TRY(format_tmpfiles(harbour, archive));
    if (TRY(read_tmpfiles_conf()) == text) return {};
    if (!options_.dry_run) TRY(write_file(text));
    log("wrote", "write",
        fmt::format("{}, which keeps the harbour over reboots and out of age-based cleaning",
                    in_quotes(tmpfiles_conf_path())));
    return {};
  }

  // Writes a temporary file and renames it, since systemd may read berth.conf at any moment.
  Result<void> write_file(const std::string& text) const {
    if (::mkdir(options_.tmpfiles.c_str(), kFolderMode) == 0) {
      (void)::chmod(options_.tmpfiles.c_str(), kFolderMode);  // mkdir() applies the umask
    } else if (errno != EEXIST) {
      return make_error("create", options_.tmpfiles);
    }
    std::string name = fmt::format("{}/.berth-XXXXXX", options_.tmpfiles);
    const UniqueFd fd(::mkostemp(name.data(), O_CLOEXEC));
    if (!fd) return make_error("write to", options_.tmpfiles);
    const bool good =
        ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
        ::fchmod(fd.get(), kSettingsFileMode) == 0 && ::fsync(fd.get()) == 0 &&
        ::rename(name.c_str(), tmpfiles_conf_path().c_str()) == 0;
    if (good) return {};
    auto error = make_error("write", tmpfiles_conf_path());
    ::unlink(name.c_str());
    return error;
  }

  const SetupOptions& options_;
  const std::string& path_;
  ActionLog actions_;
};

}  // namespace

Result<ActionLog> set_up_harbour(const SetupOptions& options) {
  return HarbourSetup(options).run();
}

std::string setup_command(const HarbourLocation& location) {
  if (!location.is_custom) return "sudo berth setup";
  return fmt::format("sudo BERTH_DIR={} berth setup", shell_quote(location.path));
}

Result<ActionLog> remove_tmpfiles(const SetupOptions& options) {
  return HarbourSetup(options).remove_tmpfiles_conf();
}

}  // namespace berth
