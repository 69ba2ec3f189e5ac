// Gathers the facts, and has them judged; see examination.h.
#include "doctor/collect.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <iterator>
#include <set>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/shell.h"
#include "base/text.h"
#include "base/users.h"
#include "devices/driver.h"
#include "doctor/host_facts.h"
#include "doctor/redis_checks.h"
#include "harbour/bell.h"
#include "harbour/lock.h"
#include "harbour/safe_directory.h"
#include "harbour/setup.h"
#include "status/status.h"

namespace berth {
namespace {

constexpr std::chrono::milliseconds kLockPatience(2000);
constexpr time_t kLoneBellSeconds = 60;  // see DirectoryTransaction::tidy()

// What was found in the harbour.
struct Sight {
  HarbourContents ledger;
  std::vector<OddFile> files;
};

void append(Findings& findings, Findings more) {
  findings.insert(findings.end(), std::make_move_iterator(more.begin()),
                  std::make_move_iterator(more.end()));
}

// Opened here and not through Harbour, which makes a directory where there is none, and refuses one
// that is not fit.
UniqueFd open_directory(const HarbourLocation& where) {
  const int follow = where.chosen ? 0 : O_NOFOLLOW;
  return UniqueFd(::open(where.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | follow));
}

bool is_simulated(const HarbourLocation& where) {
  return !where.chosen && driver_is_simulated();
}

std::string describe_location(const HarbourLocation& where) {
  return fmt::format("{}, {}", in_quotes(where.path),
                     where.chosen          ? "as BERTH_DIR says"
                     : is_simulated(where) ? "that of the simulated server"
                                           : "the default");
}

Finding cannot_open(const HarbourLocation& where) {
  const int reason = errno;
  Finding finding{"harbour", Level::problem, describe_location(where), ""};
  if (where.path.front() != '/') {
    finding.text += ": it means something else in each folder";
    finding.remedy = "set BERTH_DIR to a whole path, the same for all users";
  } else if (reason == ENOENT) {
    const std::string parent = where.path.substr(0, where.path.rfind('/') + 1);
    if (::access(parent.c_str(), F_OK) == 0) {
      finding.level = Level::note;
      finding.text += "; it is not there yet, and the first request makes it";
      if (!is_simulated(where)) {
        finding.remedy = fmt::format("{} makes it root's from the start", setup_command(where));
      }
    } else {
      finding.text += ": the folder above it does not exist";
      finding.remedy =
          fmt::format("make it (mkdir -p {}), or set BERTH_DIR to another", shell_quote(parent));
    }
  } else if (reason == ELOOP || reason == ENOTDIR) {
    struct stat about {};
    const bool known = ::lstat(where.path.c_str(), &about) == 0;
    finding.text += fmt::format(
        ": it is not a directory{}",
        known ? fmt::format(", but something that {} put there", user_name(about.st_uid)) : "");
    if (where.chosen || is_simulated(where)) {
      finding.remedy = "set BERTH_DIR to the path of a directory, the same for all users";
    } else {  // setup moves aside only what an ordinary user has put there
      finding.remedy = known && about.st_uid == 0
                           ? std::string("move it away")
                           : fmt::format("{} moves it aside", setup_command(where));
    }
  } else {
    finding.text += fmt::format(": it cannot be opened: {}", std::strerror(reason));
    finding.remedy = is_simulated(where) ? "" : setup_command(where);
  }
  return finding;
}

// Who, besides root and the directory's owner, can rename it: the owner of the folder above it, and
// everybody where that is writable for all and not sticky.
std::string mover_of(const std::string& path, uid_t owner) {
  struct stat above {};
  if (::stat(fmt::format("{}/..", path).c_str(), &above) != 0) return "";
  if ((above.st_mode & S_IWOTH) != 0 && (above.st_mode & S_ISVTX) == 0) return "everybody";
  return above.st_uid == 0 || above.st_uid == owner ? "" : user_name(above.st_uid);
}

DirectoryFacts look_at_directory(const HarbourLocation& where, int directory) {
  DirectoryFacts facts;
  facts.where = where;
  facts.simulated = is_simulated(where);
  struct stat about {};
  if (::fstat(directory, &about) == 0) {
    facts.owner = about.st_uid;
    facts.mode = about.st_mode;
  }
  facts.owner_name = user_name(facts.owner);
  facts.mover = mover_of(where.path, facts.owner);
  facts.access_list = has_access_list(directory, where.path).value_or(false);
  facts.network = network_file_system(directory);
  facts.writable = ::faccessat(directory, ".", W_OK | X_OK, AT_EACCESS) == 0;
  struct statvfs room {};
  if (::fstatvfs(directory, &room) == 0) {
    facts.free_space = Bytes{static_cast<std::uint64_t>(room.f_bavail) * room.f_frsize};
    if (room.f_files > 0) facts.free_files = room.f_favail;  // some file systems do not count them
  }
  facts.elsewhere = private_harbour(where, directory);
  return facts;
}

// Bells without a record.
void look_at_lone_files(const DirectoryTransaction& transaction, std::vector<IgnoredEntry>& ignored_entries) {
  const Listing& listing = transaction.listing();
  std::set<std::string> known(listing.leases.begin(), listing.leases.end());
  for (const TicketName& name : listing.tickets) known.insert(name.id);
  const auto look = [&](const std::string& file, const std::string& id, time_t old_enough) {
    struct statx about {};
    if (!look_at(transaction.directory(), file, about)) return;
    std::optional<uid_t> owner;
    if (!is_mount_point(about)) owner = about.stx_uid;
    const auto bell = open_bell(transaction.directory(), id, owner);
    if (!bell) return;
    if (bell->state == PeerBell::State::planted) {
      ignored_entries.push_back({file, owner, bell->problem, false});
    } else if (bell->state == PeerBell::State::dead && about.stx_mtime.tv_sec <= old_enough) {
      ignored_entries.push_back({file, owner, "its process is gone", true});
    }
  };
  for (const std::string& id : listing.bells) {
    if (!known.contains(id)) look(bell_name(id), id, ::time(nullptr) - kLoneBellSeconds);
  }
}

const char* kind_of(mode_t mode) {
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISSOCK(mode)) return "a socket";
  return "";
}

OddFile look_at_file(int directory, IgnoredEntry oddity) {
  OddFile file{std::move(oddity), false, 0};
  struct statx about {};
  if (!look_at(directory, file.oddity.file, about) || is_mount_point(about)) return file;
  file.oddity.owner = about.stx_uid;
  file.directory = S_ISDIR(about.stx_mode);
  file.inode = about.stx_ino;
  const bool bell = file.oddity.file.starts_with("bell-") && S_ISFIFO(about.stx_mode);
  if (const char* kind = kind_of(about.stx_mode); *kind != '\0' && !file.oddity.leftover && !bell) {
    file.oddity.problem += fmt::format(" ({})", kind);
  }
  return file;
}

Result<Sight> look_at_clients(DirectoryTransaction& transaction) {
  if (auto listed = transaction.list(); !listed) return tl::make_unexpected(listed.error());
  auto ledger = read_contents(transaction);
  if (!ledger) return tl::make_unexpected(ledger.error());
  Sight sight;
  look_at_lone_files(transaction, ledger->ignored_entries);
  for (IgnoredEntry& oddity : ledger->ignored_entries) {
    sight.files.push_back(look_at_file(transaction.directory(), std::move(oddity)));
  }
  sight.ledger = std::move(*ledger);
  return sight;
}

// Takes the lock as a decision does. Who cannot have it still reads, and may then see a client in
// the middle of a change.
Sight look_inside(const HarbourLocation& where, int directory, Findings& findings) {
  UniqueFd own(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!own) {
    findings.push_back(
        {"lock", Level::problem, fmt::format("it cannot be opened: {}", std::strerror(errno)), ""});
    return {};
  }
  const auto locked = lock_directory(own.get(), LockMode::exclusive, {kLockPatience, {}, {}});
  findings.push_back(locked ? Finding{"lock", Level::ok, "it can be locked", ""}
                            : as_problem("lock", locked.error()));
  Result<Sight> sight = Sight{};
  {
    DirectoryTransaction transaction(std::move(own));  // drops the lock before anything is judged
    sight = look_at_clients(transaction);
  }
  if (!sight) {
    findings.push_back(as_problem("files", sight.error()));
    return {};
  }
  append(findings, judge_files(where.path, sight->files, ::geteuid()));
  find_stopped(sight->ledger);
  append(findings, judge_unreadable(where.path, sight->ledger.leases));
  append(findings, judge_records(sight->ledger.leases, sight->ledger.tickets,
                                 std::chrono::system_clock::now()));
  return std::move(*sight);
}

// The tickets that could be granted GPUs now.
std::set<std::string> unclaimed(const HarbourContents& ledger, const Snapshot& snapshot) {
  std::set<std::string> ids;
  const HostView scene = attribute_processes(snapshot, ledger.leases, ledger.drains);
  PlanInput input = plan_input(scene, {}, std::chrono::system_clock::now());
  for (std::size_t i = 0; i < ledger.tickets.size(); ++i) {
    input.tickets.push_back(queued(ledger.tickets[i], ledger.stopped[i]));
  }
  for (const Outcome& outcome : plan(input)) {
    if (outcome.grant) ids.insert(outcome.ticket);
  }
  return ids;
}

// A granted client claims its GPUs within a moment. One that has not after some seconds is silent.
std::vector<WaitingTicket> find_silent(const HarbourLocation& where, const HarbourContents& ledger,
                                       const Snapshot& snapshot) {
  constexpr std::chrono::seconds kMoment(3);
  std::set<std::string> silent = unclaimed(ledger, snapshot);
  if (!silent.empty()) {
    std::this_thread::sleep_for(kMoment);
    auto harbour = Harbour::open_existing(where);
    const auto later = harbour && *harbour ? read_contents(**harbour) : HarbourContents{};
    const auto still = later ? unclaimed(*later, snapshot) : std::set<std::string>{};
    std::erase_if(silent, [&](const std::string& id) { return !still.contains(id); });
  }
  StoppedProcesses stopped;
  stopped.read(ledger.tickets);
  std::vector<WaitingTicket> tickets;
  for (std::size_t i = 0; i < ledger.tickets.size(); ++i) {
    const Record& ticket = ledger.tickets[i];
    tickets.push_back({ticket, static_cast<bool>(ledger.stopped[i]), silent.contains(ticket.id),
                       stopped.contains(ticket)});
  }
  return tickets;
}

// Live clients in the default harbour, where that is another directory than ours.
std::size_t clients_in_default(const HarbourLocation& ours) {
  const UniqueFd mine = open_directory(ours);
  UniqueFd other = open_directory(default_harbour_location());
  struct stat here {};
  struct stat there {};
  if (!ours.chosen || !other || ::fstat(other.get(), &there) != 0) return 0;
  const bool same = mine && ::fstat(mine.get(), &here) == 0 && here.st_dev == there.st_dev &&
                    here.st_ino == there.st_ino;
  if (same) return 0;
  DirectoryTransaction transaction(std::move(other));  // without the lock: a count needs none
  if (!transaction.list()) return 0;
  const auto ledger = read_contents(transaction);
  return ledger ? ledger->leases.size() + ledger->tickets.size() : 0;
}

Result<Snapshot> ask_driver(const std::function<void()>& on_slow) {
  auto probe = open_driver(on_slow);
  if (!probe) return tl::make_unexpected(probe.error());
  return (*probe)->snapshot();
}

Finding describe_driver(const Result<Snapshot>& snapshot) {
  if (!snapshot) {
    Finding finding = as_problem("driver", snapshot.error());
    const bool setting = snapshot.error().kind == ErrorKind::usage;
    if (finding.remedy.empty())
      finding.remedy = setting ? "correct or unset it" : "reinstall the driver";
    return finding;
  }
  const std::size_t count = snapshot->gpus.size();
  return {"driver", Level::ok,
          fmt::format("{}driver {} answers: {} {}", driver_is_simulated() ? "simulated " : "",
                      snapshot->driver_version.value_or("of unknown version"), count,
                      count == 1 ? "GPU" : "GPUs"),
          ""};
}

}  // namespace

Findings examine(const std::function<void()>& on_slow) {
  const auto snapshot = ask_driver(on_slow);
  const HarbourLocation where = harbour_location();
  Findings findings;
  Sight sight;
  // A path that is not whole is not looked at: who asks may stand anywhere.
  const UniqueFd directory = where.path.front() == '/' ? open_directory(where) : UniqueFd();
  if (directory) {
    findings.push_back({"harbour", Level::ok, describe_location(where), ""});
    append(findings, judge_directory(look_at_directory(where, directory.get())));
    sight = look_inside(where, directory.get(), findings);
    append(findings, judge_queue(find_silent(where, sight.ledger, snapshot.value_or(Snapshot{}))));
  } else {
    findings.push_back(cannot_open(where));
  }
  if (where.wrong) findings.push_back(as_problem("server", *where.wrong));
  if (where.url) {
    const HarbourContents here = sight.ledger;
    append(findings, judge_server(look_at_server(where, here, sight.ledger)));
  }
  if (!is_simulated(where)) append(findings, judge_cleaning(look_at_cleaning(where)));
  if (where.path.front() == '/') {
    ArchiveFacts archive = look_at_archive(where);
    archive.simulated = is_simulated(where);
    append(findings, judge_archive(archive));
  }
  std::set<std::string> known;
  for (const Record& lease : sight.ledger.leases) known.insert(lease.id);
  append(findings, judge_other_harbours({clients_in_default(where), default_harbour_location().path,
                                         foreign_holders(where, known)},
                                        where));
  const HostView scene =
      attribute_processes(snapshot.value_or(Snapshot{}), sight.ledger.leases, sight.ledger.drains);
  append(findings, judge_drains(sight.ledger.drains, scene, std::chrono::system_clock::now()));
  append(findings, judge_limits(look_at_limits()));
  append(findings, judge_proc(look_at_proc()));
  append(findings, judge_links(look_at_links()));
  // What most people came for stands first.
  Findings all{describe_driver(snapshot)};
  if (snapshot) append(all, judge_gpus(scene, ::geteuid()));
  append(all, std::move(findings));
  return all;
}

}  // namespace berth
