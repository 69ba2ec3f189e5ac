// Collects the facts about driver and harbour, and runs all checks; see collect.h.
#include "doctor/collect.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <iterator>
#include <memory>
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
#include "doctor/redis_facts.h"
#include "harbour/bell.h"
#include "harbour/directory_transaction.h"
#include "harbour/file_names.h"
#include "harbour/lock.h"
#include "harbour/safe_directory.h"
#include "harbour/setup.h"
#include "status/status.h"

namespace berth {
namespace {

constexpr std::chrono::milliseconds kLockTimeout(2000);

struct DoctorInput {
  HarbourContents contents;
  std::vector<IgnoredFile> files;
};

void append(Findings& findings, Findings more) {
  findings.insert(findings.end(), std::make_move_iterator(more.begin()),
                  std::make_move_iterator(more.end()));
}

// Does not use Harbour, which creates a missing directory and refuses an unsafe one.
UniqueFd open_directory(const HarbourLocation& where) {
  const int follow = where.is_custom ? 0 : O_NOFOLLOW;
  return UniqueFd(::open(where.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | follow));
}

bool is_simulated(const HarbourLocation& where) {
  return !where.is_custom && is_driver_simulated();
}

std::string describe_location(const HarbourLocation& where) {
  return fmt::format("{}, {}", in_quotes(where.path),
                     where.is_custom       ? "set by BERTH_DIR"
                     : is_simulated(where) ? "the default of the simulated server"
                                           : "the default");
}

Finding describe_open_failure(const HarbourLocation& where) {
  const int reason = errno;
  Finding finding{"harbour", Level::problem, describe_location(where), ""};
  if (where.path.front() != '/') {
    finding.text += ": a relative path depends on the current folder";
    finding.remedy = "set BERTH_DIR to an absolute path, the same for all users";
  } else if (reason == ENOENT) {
    const std::string parent = where.path.substr(0, where.path.rfind('/') + 1);
    if (::access(parent.c_str(), F_OK) == 0) {
      finding.level = Level::note;
      finding.text += "; it does not exist yet, the first request creates it";
      if (!is_simulated(where)) {
        finding.remedy =
            fmt::format("run: {} (creates it with root as owner)", setup_command(where));
      }
    } else {
      finding.text += ": the folder above it does not exist";
      finding.remedy = fmt::format("create it (mkdir -p {}), or set BERTH_DIR to another folder",
                                   shell_quote(parent.substr(0, parent.size() - 1)));
    }
  } else if (reason == ELOOP || reason == ENOTDIR) {
    struct stat attributes {};
    const bool known = ::lstat(where.path.c_str(), &attributes) == 0;
    finding.text +=
        fmt::format(": it is not a directory{}",
                    known ? fmt::format(" (owner: {})", user_name(attributes.st_uid)) : "");
    if (where.is_custom || is_simulated(where)) {
      finding.remedy = "set BERTH_DIR to the path of a directory, the same for all users";
    } else {  // setup moves aside only what does not belong to root
      finding.remedy = known && attributes.st_uid == 0
                           ? std::string("move it elsewhere")
                           : fmt::format("run: {} (moves it aside)", setup_command(where));
    }
  } else {
    finding.text += fmt::format(": it cannot be opened: {}", std::strerror(reason));
    finding.remedy = is_simulated(where) ? "" : fmt::format("run: {}", setup_command(where));
  }
  return finding;
}

// The name of a user, other than root and the directory's owner, who can rename the directory: the
// owner of the folder above it, or any user if that folder is writable for all and not sticky.
std::string find_mover(const std::string& path, uid_t owner) {
  struct stat above {};
  if (::stat(fmt::format("{}/..", path).c_str(), &above) != 0) return "";
  if ((above.st_mode & S_IWOTH) != 0 && (above.st_mode & S_ISVTX) == 0) return "every user";
  return above.st_uid == 0 || above.st_uid == owner ? "" : user_name(above.st_uid);
}

DirectoryFacts collect_directory_facts(const HarbourLocation& where, int directory) {
  DirectoryFacts facts;
  facts.where = where;
  facts.simulated = is_simulated(where);
  struct stat attributes {};
  if (::fstat(directory, &attributes) == 0) {
    facts.owner = attributes.st_uid;
    facts.mode = attributes.st_mode;
  }
  facts.owner_name = user_name(facts.owner);
  facts.movable_by = find_mover(where.path, facts.owner);
  facts.has_access_list = has_access_list(directory, where.path).value_or(false);
  facts.network_file_system = detect_network_file_system(directory);
  facts.writable = ::faccessat(directory, ".", W_OK | X_OK, AT_EACCESS) == 0;
  struct statvfs room {};
  if (::fstatvfs(directory, &room) == 0) {
    facts.free_space = Bytes{static_cast<std::uint64_t>(room.f_bavail) * room.f_frsize};
    if (room.f_files > 0) facts.free_files = room.f_favail;  // some file systems do not count them
  }
  facts.private_harbour_reason = detect_private_harbour(where, directory);
  return facts;
}

// Adds the bells without a record that are not trusted, or were left by a client that is gone. The
// age is that of the mtime, as in DirectoryTransaction::remove_orphan_bells(), which the finding
// promises will remove them. Its owner can set it to any time, other users at most to now: that
// hides or shows no more than a harmless bell.
void collect_orphan_bells(const DirectoryTransaction& transaction,
                          std::vector<IgnoredEntry>& ignored_entries) {
  const DirectoryListing& listing = transaction.listing();
  std::set<std::string> known(listing.leases.begin(), listing.leases.end());
  for (const TicketName& name : listing.tickets) known.insert(name.id);
  const time_t orphaned_since = ::time(nullptr) - kOrphanBellSeconds;
  for (const std::string& id : listing.bells) {
    if (known.contains(id)) continue;
    const std::string file = bell_file_name(id);
    struct statx attributes {};
    if (!stat_at(transaction.directory(), file, attributes)) continue;
    std::optional<uid_t> owner;
    if (!is_mount_point(attributes)) owner = attributes.stx_uid;
    const auto bell = open_bell(transaction.directory(), id, owner);
    if (!bell) continue;
    if (bell->state == PeerBell::State::untrusted) {
      ignored_entries.push_back({file, owner, bell->problem, false});
    } else if (bell->state == PeerBell::State::dead &&
               attributes.stx_mtime.tv_sec <= orphaned_since) {
      ignored_entries.push_back({file, owner, "its process is gone", true});
    }
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

IgnoredFile inspect_file(int directory, IgnoredEntry entry) {
  IgnoredFile file{std::move(entry), 0};
  struct statx attributes {};
  if (!stat_at(directory, file.entry.file, attributes) || is_mount_point(attributes)) return file;
  file.entry.owner = attributes.stx_uid;
  file.inode = attributes.stx_ino;
  const bool bell = file.entry.file.starts_with(kBellPrefix) && S_ISFIFO(attributes.stx_mode);
  if (const char* kind = kind_of(attributes.stx_mode);
      *kind != '\0' && !file.entry.leftover && !bell &&
      file.entry.problem.find(kind) == std::string::npos) {
    file.entry.problem += fmt::format(" ({})", kind);
  }
  return file;
}

Result<DoctorInput> collect_clients(DirectoryTransaction& transaction) {
  TRY(transaction.list());
  DoctorInput input;
  input.contents = TRY(read_contents(transaction));
  collect_orphan_bells(transaction, input.contents.ignored_entries);
  for (IgnoredEntry& entry : input.contents.ignored_entries) {
    input.files.push_back(inspect_file(transaction.directory(), std::move(entry)));
  }
  return input;
}

// Takes the lock as a decision does. If the lock cannot be taken, it reads all the same, and may
// see a client in the middle of a change.
DoctorInput check_harbour_contents(const HarbourLocation& where, int directory,
                                   Findings& findings) {
  UniqueFd own(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!own) {
    findings.push_back({"lock", Level::problem,
                        fmt::format("the harbour cannot be opened: {}", std::strerror(errno)), ""});
    return {};
  }
  const auto locked = lock_directory(own.get(), LockMode::exclusive, {kLockTimeout, {}, {}});
  findings.push_back(locked ? Finding{"lock", Level::ok, "the lock can be taken", ""}
                            : make_problem("lock", locked.error()));
  Result<DoctorInput> input = DoctorInput{};
  {
    DirectoryTransaction transaction(std::move(own));  // releases the lock before the checks
    input = collect_clients(transaction);
  }
  if (!input) {
    findings.push_back(make_problem("files", input.error()));
    return {};
  }
  append(findings, check_files(where.path, input->files, ::geteuid()));
  mark_stopped_tickets(input->contents);
  append(findings, check_unreadable(where.path, input->contents.leases));
  append(findings, check_records(input->contents.leases, input->contents.tickets,
                                 std::chrono::system_clock::now()));
  return std::move(*input);
}

// The tickets that could be granted GPUs now.
std::set<std::string> find_grantable_tickets(const HarbourContents& contents,
                                             const Snapshot& snapshot) {
  std::set<std::string> ids;
  const HostView view = make_host_view(snapshot, contents.leases, contents.drains);
  PlanInput input = make_plan_input(view, {}, std::chrono::system_clock::now());
  for (std::size_t i = 0; i < contents.tickets.size(); ++i) {
    input.tickets.push_back(make_queued_ticket(contents.tickets[i], contents.stopped[i]));
  }
  for (const Outcome& outcome : plan(input)) {
    if (outcome.grant) ids.insert(outcome.ticket);
  }
  return ids;
}

// A client that can be granted GPUs claims them within a moment. A client that has not done so
// after a few seconds is silent.
std::vector<WaitingTicket> find_waiting_tickets(const HarbourLocation& where,
                                                const HarbourContents& contents,
                                                const Snapshot& snapshot) {
  constexpr std::chrono::seconds kClaimTime(3);
  std::set<std::string> silent = find_grantable_tickets(contents, snapshot);
  if (!silent.empty()) {
    std::this_thread::sleep_for(kClaimTime);
    auto harbour = Harbour::open_existing(where);
    const auto later = harbour && *harbour ? read_contents(**harbour) : HarbourContents{};
    const auto still = later ? find_grantable_tickets(*later, snapshot) : std::set<std::string>{};
    std::erase_if(silent, [&](const std::string& id) { return !still.contains(id); });
  }
  StoppedProcesses stopped;
  stopped.read(contents.tickets);
  std::vector<WaitingTicket> tickets;
  for (std::size_t i = 0; i < contents.tickets.size(); ++i) {
    const Record& ticket = contents.tickets[i];
    tickets.push_back({ticket, static_cast<bool>(contents.stopped[i]), silent.contains(ticket.id),
                       stopped.contains(ticket)});
  }
  return tickets;
}

// Live clients in the default harbour; 0 if that is the directory that this process uses.
std::size_t count_clients_in_default(const HarbourLocation& ours) {
  const UniqueFd our_directory = open_directory(ours);
  UniqueFd default_directory = open_directory(default_harbour_location());
  struct stat ours_stat {};
  struct stat default_stat {};
  if (!ours.is_custom || !default_directory || ::fstat(default_directory.get(), &default_stat) != 0)
    return 0;
  const bool same = our_directory && ::fstat(our_directory.get(), &ours_stat) == 0 &&
                    ours_stat.st_dev == default_stat.st_dev &&
                    ours_stat.st_ino == default_stat.st_ino;
  if (same) return 0;
  // A count does not need the lock.
  DirectoryTransaction transaction(std::move(default_directory));
  if (!transaction.list()) return 0;
  const auto contents = read_contents(transaction);
  return contents ? contents->leases.size() + contents->tickets.size() : 0;
}

Result<Snapshot> read_snapshot(const std::function<void()>& on_slow) {
  const std::unique_ptr<Probe> probe = TRY(open_driver(on_slow));
  return probe->snapshot();
}

Finding describe_driver(const Result<Snapshot>& snapshot) {
  if (!snapshot) {
    Finding finding = make_problem("driver", snapshot.error());
    const bool setting = snapshot.error().kind == ErrorKind::usage;
    if (finding.remedy.empty())
      finding.remedy = setting ? "correct or unset the variable" : "reinstall the driver";
    return finding;
  }
  const std::size_t count = snapshot->gpus.size();
  return {"driver", Level::ok,
          fmt::format("{}driver {} answers: {} {}", is_driver_simulated() ? "simulated " : "",
                      snapshot->driver_version.value_or("of unknown version"), count,
                      count == 1 ? "GPU" : "GPUs"),
          ""};
}

}  // namespace

Findings run_checks(const std::function<void()>& on_slow) {
  const auto snapshot = read_snapshot(on_slow);
  const HarbourLocation where = harbour_location();
  Findings findings;
  DoctorInput input;
  // A relative path is not opened: the result would depend on the folder that doctor runs in.
  const UniqueFd directory = where.path.front() == '/' ? open_directory(where) : UniqueFd();
  if (directory) {
    findings.push_back({"harbour", Level::ok, describe_location(where), ""});
    append(findings, check_directory(collect_directory_facts(where, directory.get())));
    input = check_harbour_contents(where, directory.get(), findings);
    append(findings,
           check_queue(find_waiting_tickets(where, input.contents, snapshot.value_or(Snapshot{}))));
  } else {
    findings.push_back(describe_open_failure(where));
  }
  if (where.configuration_error)
    findings.push_back(make_problem("server", *where.configuration_error));
  if (where.url) {
    const HarbourContents local_contents = input.contents;
    append(findings, check_server(collect_server_facts(where, local_contents, input.contents)));
  }
  if (!is_simulated(where)) append(findings, check_cleaning(collect_cleaning_facts(where)));
  if (where.path.front() == '/') {
    ArchiveFacts archive = collect_archive_facts(where);
    archive.simulated = is_simulated(where);
    append(findings, check_archive(archive));
  }
  std::set<std::string> known;
  for (const Record& lease : input.contents.leases) known.insert(lease.id);
  append(findings,
         check_other_harbours({count_clients_in_default(where), default_harbour_location().path,
                               find_foreign_holders(where, known)},
                              where));
  const HostView view =
      make_host_view(snapshot.value_or(Snapshot{}), input.contents.leases, input.contents.drains);
  append(findings, check_drains(input.contents.drains, view, std::chrono::system_clock::now()));
  append(findings, check_limits(collect_limits_facts()));
  append(findings, check_proc(collect_proc_facts()));
  append(findings, check_links(collect_links_facts()));
  // The GPUs come first: most users run doctor because of them.
  Findings all{describe_driver(snapshot)};
  if (snapshot) append(all, check_gpus(view, ::geteuid()));
  append(all, std::move(findings));
  return all;
}

}  // namespace berth
