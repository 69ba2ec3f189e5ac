// Setting the harbour up as root; see setup.h.
#include "harbour/setup.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "base/users.h"
#include "harbour/directory_transaction.h"
#include "harbour/file_error.h"
#include "harbour/tmpfiles.h"

namespace berth {
namespace {

constexpr mode_t kHarbourMode = 01777;
constexpr mode_t kFolderMode = 0755;
constexpr mode_t kFileMode = 0644;
constexpr const char* kFile = "berth.conf";

// Others live here, and count on its age-based cleaning.
bool is_shared_folder(const struct stat& about) {
  for (const char* path : {"/", "/tmp", "/var/tmp", "/dev/shm", "/run", "/run/lock", "/home"}) {
    struct stat one {};
    if (::stat(path, &one) == 0 && one.st_dev == about.st_dev && one.st_ino == about.st_ino) {
      return true;
    }
  }
  return false;
}

class Setup {
 public:
  explicit Setup(const SetupOptions& options) : options_(options), path_(options.where.path) {}

  Result<Deeds> run() {
    // A path that is not whole: the same error as everywhere.
    if (path_.front() != '/')
      return tl::make_unexpected(open_harbour_directory(options_.where).error());
    if (auto named = check_name(path_); !named) return tl::make_unexpected(named.error());
    if (auto opened = open(); !opened) return tl::make_unexpected(opened.error());
    if (auto named = check_name(real_path()); !named) return tl::make_unexpected(named.error());
    if (directory_) {
      if (auto fit = check(); !fit) return tl::make_unexpected(fit.error());
      if (auto owned = own(); !owned) return tl::make_unexpected(owned.error());
    }
    if (auto kept = keep(); !kept) return tl::make_unexpected(kept.error());
    return std::move(deeds_);
  }

  Result<Deeds> forget() {
    auto text = written();
    if (!text) return tl::make_unexpected(text.error());
    if (!*text) return std::move(deeds_);
    if (!options_.dry_run && ::unlink(file().c_str()) != 0) return file_error("remove", file());
    tell("removed", "remove", file());
    return std::move(deeds_);
  }

 private:
  void tell(std::string_view done, std::string_view would, const std::string& what) {
    deeds_.push_back(options_.dry_run ? fmt::format("would {} {}", would, what)
                                      : fmt::format("{} {}", done, what));
  }

  // Never through a symbolic link, whoever chose the path: what it names could be changed
  // meanwhile.
  UniqueFd open_now() const {
    return UniqueFd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  }

  Result<void> open() {
    directory_ = open_now();
    if (!directory_ && errno == ENOENT) {
      if (!options_.dry_run) {
        if (auto made = open_harbour_directory(options_.where); !made) {
          return tl::make_unexpected(made.error());
        }
        directory_ = open_now();
        if (!directory_) return file_error("open the harbour", path_);
      }
      tell("made", "make", fmt::format("{} (root's, mode 1777)", in_quotes(path_)));
      return {};
    }
    if (!directory_ && (errno == ELOOP || errno == ENOTDIR)) {
      struct stat about {};
      const bool known = ::lstat(path_.c_str(), &about) == 0;
      return fail(
          ErrorKind::harbour,
          fmt::format("{} is {}{}; {}", in_quotes(path_),
                      known && S_ISLNK(about.st_mode) ? "a symbolic link" : "not a directory",
                      known ? fmt::format(" that {} put there", user_name(about.st_uid)) : "",
                      options_.where.chosen ? "set BERTH_DIR to the directory itself"
                                            : "remove it, and run setup again"));
    }
    if (!directory_) return file_error("open the harbour", path_);
    return {};
  }

  static Result<void> check_name(const std::string& path) {
    const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
    if (std::none_of(path.begin(), path.end(), is_control)) return {};
    return fail(ErrorKind::harbour, fmt::format("{} has a control character in its name, which "
                                                "tmpfiles.d cannot name; choose another",
                                                in_quotes(path)));
  }

  Result<void> check() const {
    if (const auto network = network_file_system(directory_.get())) {
      return fail(
          ErrorKind::harbour,
          fmt::format("{} is on a network file system ({}), where leases would not be safe; "
                      "set BERTH_DIR to a local folder",
                      in_quotes(path_), *network));
    }
    struct stat about {};
    if (::fstat(directory_.get(), &about) != 0) return file_error("look at", path_);
    // Names that are not berth's: in a folder that only its owner could write to he put them there,
    // so it is something else. Where all could, somebody planted them, and they must not be in the
    // way.
    const bool open_to_all = (about.st_mode & 0002) != 0;
    DirectoryTransaction look(UniqueFd(::fcntl(directory_.get(), F_DUPFD_CLOEXEC, 0)));
    if (auto listed = look.list(); !listed) return listed;
    if (is_shared_folder(about) || (!open_to_all && !look.listing().others.empty())) {
      return fail(
          ErrorKind::harbour,
          fmt::format("{} is used for other things too, and setup would open it to all users; "
                      "set BERTH_DIR to a folder of berth's own",
                      in_quotes(path_)));
    }
    return {};
  }

  // Through the descriptor, so that it is the same directory that was looked at. Its owner first:
  // from then on nobody else can change the mode.
  Result<void> own() {
    struct stat about {};
    if (::fstat(directory_.get(), &about) != 0) return file_error("look at", path_);
    if (about.st_uid != 0) {
      if (!options_.dry_run && ::fchown(directory_.get(), 0, 0) != 0)
        return file_error("chown", path_);
      tell(
          "gave", "give",
          fmt::format("{} to root (it belonged to {})", in_quotes(path_), user_name(about.st_uid)));
      tell_drains(about.st_uid);
    }
    if ((about.st_mode & 07777) != kHarbourMode) {
      if (!options_.dry_run && ::fchmod(directory_.get(), kHarbourMode) != 0) {
        return file_error("chmod", path_);
      }
      tell("set", "set",
           fmt::format("the mode of {} to 1777 (it was {:04o})", in_quotes(path_),
                       about.st_mode & 07777));
    }
    return {};
  }

  // Only root and the harbour's owner may drain, so those of the former owner end here.
  void tell_drains(uid_t former) {
    if (former == 0) return;
    DirectoryTransaction look(UniqueFd(::fcntl(directory_.get(), F_DUPFD_CLOEXEC, 0)));
    if (!look.list()) return;
    for (const std::string& uuid : look.listing().drains) {
      struct stat about {};
      const std::string name = fmt::format("drain-{}", uuid);
      if (::fstatat(directory_.get(), name.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0) continue;
      if (about.st_uid != former) continue;
      tell("ended", "end",
           fmt::format("{}'s drain of {}; 'sudo berth drain' makes it anew", user_name(former),
                       uuid));
    }
  }

  std::string file() const { return fmt::format("{}/{}", options_.tmpfiles, kFile); }

  // What berth.conf says now; nothing if there is none. One that is not ours is an error.
  Result<std::optional<std::string>> written() const {
    const std::string name = file();
    const UniqueFd fd(::open(name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!fd && errno == ENOENT) return std::nullopt;
    if (!fd && errno != ELOOP) return file_error("read", name);
    std::string text(kLargestRecord, '\0');
    const auto length = fd ? ::read(fd.get(), text.data(), text.size()) : 0;
    if (length < 0) return file_error("read", name);
    text.resize(static_cast<std::size_t>(length));
    if (!is_tmpfiles_text(text)) {
      return fail(ErrorKind::harbour,
                  fmt::format("{} was not written by berth setup; move it away", in_quotes(name)));
    }
    return text;
  }

  // systemd-tmpfiles wants the path as the kernel knows it.
  std::string real_path() const {
    std::error_code ignored;
    const std::filesystem::path path =
        directory_ ? std::filesystem::read_symlink(
                         fmt::format("/proc/self/fd/{}", directory_.get()), ignored)
                   : std::filesystem::weakly_canonical(path_, ignored);
    return path.empty() ? path_ : path.string();
  }

  Result<void> keep() {
    const std::string wanted = tmpfiles_text(real_path());
    auto text = written();
    if (!text) return tl::make_unexpected(text.error());
    if (*text == wanted) return {};
    if (!options_.dry_run) {
      if (auto put = replace(wanted); !put) return put;
    }
    tell("wrote", "write",
         fmt::format("{}, which keeps it over reboots and out of age-based cleaning",
                     in_quotes(file())));
    return {};
  }

  // Whole or not at all: systemd may read it at any moment.
  Result<void> replace(const std::string& text) const {
    if (::mkdir(options_.tmpfiles.c_str(), kFolderMode) == 0) {
      (void)::chmod(options_.tmpfiles.c_str(), kFolderMode);  // whatever the umask is
    } else if (errno != EEXIST) {
      return file_error("make", options_.tmpfiles);
    }
    std::string name = fmt::format("{}/.berth-XXXXXX", options_.tmpfiles);
    const UniqueFd fd(::mkostemp(name.data(), O_CLOEXEC));
    if (!fd) return file_error("write to", options_.tmpfiles);
    const bool good =
        ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
        ::fchmod(fd.get(), kFileMode) == 0 && ::fsync(fd.get()) == 0 &&
        ::rename(name.c_str(), file().c_str()) == 0;
    if (good) return {};
    auto error = file_error("write", file());
    ::unlink(name.c_str());
    return error;
  }

  const SetupOptions& options_;
  const std::string& path_;
  UniqueFd directory_;
  Deeds deeds_;
};

}  // namespace

Result<Deeds> set_up(const SetupOptions& options) {
  return Setup(options).run();
}

Result<Deeds> remove_tmpfiles(const SetupOptions& options) {
  return Setup(options).forget();
}

}  // namespace berth
