// The checks of the harbour and of the host around it; see checks.h. The checks of GPUs, leases and
// the queue are in client_checks.cpp.
#include "doctor/checks.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>
#include <utility>

#include "base/shell.h"
#include "base/text.h"
#include "base/users.h"
#include "harbour/file_names.h"
#include "harbour/setup.h"

namespace berth {
namespace {

constexpr Bytes kMinSpace = mib(1);  // a client needs two files of a few hundred bytes
constexpr Bytes kLowSpace = mib(64);
constexpr std::uint64_t kMinFreeInodes = 100;
constexpr std::uint64_t kLowFreeInodes = 1000;
constexpr std::size_t kMaxShown = 20;
constexpr std::uint64_t kMinDescriptors = 256;
constexpr std::uint64_t kMinInotifyInstances = 16;
constexpr std::uint64_t kMinProcesses = 64;

Finding check_owner(const DirectoryFacts& facts) {
  Finding finding{"owner", Level::ok, fmt::format("belongs to {}", facts.owner_name), ""};
  if (facts.owner != 0 && !facts.simulated) {
    finding.level = Level::note;
    finding.text += ", who can delete what is in it";
    finding.remedy = fmt::format("run: {} (makes root the owner)", setup_command(facts.where));
  }
  if (!facts.movable_by.empty() && !facts.simulated) {
    finding.level = Level::note;
    finding.text += fmt::format("; {} can move it away (write access to the folder above it)",
                                facts.movable_by);
    if (finding.remedy.empty())
      finding.remedy = "set BERTH_DIR to a folder whose parent belongs to root";
  }
  return finding;
}

Finding check_mode(const DirectoryFacts& facts) {
  const mode_t mode = facts.mode & 07777;
  const bool others_write = (mode & 0022) != 0;
  const bool sticky = (mode & 01000) != 0;
  const bool all_write = (mode & 0777) == 0777;
  Finding finding{"mode", Level::ok, fmt::format("mode {:04o}", mode), ""};
  if (others_write && !sticky) {
    finding.level = Level::problem;
    finding.text += ", so any user could delete the leases of other users; berth refuses to use it";
  } else if (!all_write) {
    // The user who chose a folder may have meant it for a group or for themselves.
    finding.level = facts.where.is_custom || facts.simulated ? Level::note : Level::problem;
    finding.text += ", so not every user of this host can use it";
  }
  if (finding.level != Level::ok) {
    finding.remedy =
        fmt::format("run as {}: chmod 1777 {}", facts.owner_name, shell_quote(facts.where.path));
    if (!facts.simulated) {
      finding.remedy += fmt::format(" (or: {})", setup_command(facts.where));
    }
  }
  return finding;
}

Finding check_space(const DirectoryFacts& facts) {
  Finding finding{"space", Level::ok, "", ""};
  const Bytes space = facts.free_space.value_or(kLowSpace);
  const std::uint64_t files = facts.free_files.value_or(kLowFreeInodes);
  finding.text = facts.free_space ? fmt::format("{} free", format_size(space))
                                  : std::string("free space unknown");
  if (facts.free_files) finding.text += fmt::format(", {} inodes free", files);
  if (space < kLowSpace || files < kLowFreeInodes) {
    const bool bad = space < kMinSpace || files < kMinFreeInodes;
    finding.level = bad ? Level::problem : Level::note;
    finding.text += bad ? ": not enough for new requests (leases can still end)" : ": low";
    finding.remedy =
        fmt::format("free space on its file system (see: df {})", shell_quote(facts.where.path));
  }
  return finding;
}

// The path of the file; its inode if its name is too long or could confuse a terminal or a shell.
std::string format_file(const std::string& path, const IgnoredFile& file) {
  constexpr std::string_view plain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  const std::string& name = file.entry.file;
  if (name.find_first_not_of(plain) == std::string::npos && name.size() <= 64) {
    return shell_quote(fmt::format("{}/{}", path, name));
  }
  return fmt::format("inode {} in {} (see: ls -lai)", file.inode, shell_quote(path));
}

Finding check_untrusted_file(const std::string& path, const IgnoredFile& file, uid_t viewer) {
  const auto& owner = file.entry.owner;
  Finding finding{"planted", Level::problem, "", ""};
  finding.text = fmt::format("{} of {} is ignored: {}", in_quotes(file.entry.file),
                             owner ? user_name(*owner) : "an unknown user", file.entry.problem);
  // Never a command that deletes the file: berth did not make it, and its owner may need it.
  if (file.entry.has_live_bell) {
    finding.remedy = fmt::format("ask {} to end the process that writes the file",
                                 owner ? user_name(*owner) : "its owner");
  } else if (owner == viewer) {
    finding.remedy = fmt::format("the file does no harm; as its owner, you can move it away: {}",
                                 format_file(path, file));
  } else {
    finding.remedy = fmt::format("the file does no harm; ask {} to remove it: {}",
                                 owner ? user_name(*owner) : "its owner", format_file(path, file));
  }
  return finding;
}

// Files with names that Berth never uses, as in a folder that has another purpose. One finding for
// all of them, because they are harmless.
Finding check_foreign_files(const std::string& path, std::vector<const IgnoredFile*> files,
                            uid_t viewer) {
  std::sort(files.begin(), files.end(), [](const IgnoredFile* a, const IgnoredFile* b) {
    return a->entry.file < b->entry.file;
  });
  if (files.size() == 1) {
    Finding finding = check_untrusted_file(path, *files.front(), viewer);
    finding.level = Level::note;
    return finding;
  }
  constexpr std::size_t kMaxNamed = 3;
  const std::size_t named = files.size() <= kMaxNamed + 1 ? files.size() : kMaxNamed;
  const std::vector<const IgnoredFile*> first(files.begin(),
                                              files.begin() + static_cast<std::ptrdiff_t>(named));
  const std::size_t more = files.size() - named;
  return {
      "planted", Level::note,
      fmt::format("{}{} are ignored: they are not files of berth",
                  join_text(first, ", ",
                            [](const IgnoredFile* file) { return in_quotes(file->entry.file); }),
                  more > 0 ? fmt::format(" and {} more", more) : ""),
      fmt::format("they do no harm, but a harbour should be a directory of its own (see: ls -la "
                  "{})",
                  shell_quote(path))};
}

}  // namespace

std::string_view to_string(Level level) {
  switch (level) {
    case Level::ok:
      return "ok";
    case Level::note:
      return "note";
    case Level::problem:
      return "problem";
  }
  return "problem";
}

Finding make_problem(std::string check, const Error& error) {
  const auto semicolon = error.message.find("; ");
  const bool split = semicolon != std::string::npos;
  return {std::move(check), Level::problem, error.message.substr(0, semicolon),
          split ? error.message.substr(semicolon + 2) : ""};
}

Findings check_server(const ServerFacts& facts) {
  if (facts.error) return {make_problem("server", *facts.error)};
  Findings findings{{"server", Level::ok,
                     fmt::format("{} answers (URL from {}); this host is registered as {}",
                                 facts.name, facts.source, in_quotes(facts.host)),
                     ""}};
  if (facts.open_to_all) {
    findings.push_back({"server", Level::problem,
                        "the server needs no password, and other hosts can reach it: any client "
                        "can take and end the leases of all users",
                        "set a password (ACL SETUSER or requirepass), or bind the server to "
                        "loopback only"});
  }
  if (facts.loses_data_on_restart) {
    findings.push_back({"server", Level::note,
                        "the server saves nothing to disk: after a restart, hosts restore their "
                        "leases and waiting clients their tickets, but drains are lost",
                        "set 'appendonly yes' in the server's configuration"});
  }
  if (facts.bypassing_clients > 0) {
    findings.push_back(
        {"server", Level::problem,
         fmt::format("{} on this host {} only the local directory, not the server: no GPU is "
                     "granted twice, but tickets there wait in a separate queue",
                     facts.bypassing_clients == 1
                         ? "1 lease or ticket"
                         : fmt::format("{} leases and tickets", facts.bypassing_clients),
                     facts.bypassing_clients == 1 ? "uses" : "use"),
         "set BERTH_URL for their users too, or the URL for all users in /etc/berth.toml"});
  }
  for (const IgnoredEntry& entry : facts.ignored_entries) {
    if (entry.leftover) continue;
    findings.push_back(
        {"server", Level::note, fmt::format("{}: {}", entry.file, entry.problem), ""});
  }
  return findings;
}

Findings check_directory(const DirectoryFacts& facts) {
  Findings findings{check_owner(facts), check_mode(facts)};
  if (facts.has_access_list) {
    findings.push_back(
        {"acl", Level::problem,
         "has an access control list, which can hide leases from some users; berth refuses to use "
         "it",
         facts.simulated ? fmt::format("run: setfacl -bk {}", shell_quote(facts.where.path))
                         : fmt::format("run: {} (removes the list)", setup_command(facts.where))});
  } else {
    findings.push_back({"acl", Level::ok, "no access control list", ""});
  }
  if (facts.network_file_system) {
    findings.push_back({"file_system", Level::problem,
                        fmt::format("on a network file system ({}), where leases are not safe",
                                    *facts.network_file_system),
                        "set BERTH_DIR to a local folder, the same for all users"});
  } else {
    findings.push_back({"file_system", Level::ok, "on a local file system", ""});
  }
  if (facts.writable) {
    findings.push_back({"writable", Level::ok, "this user can write to it", ""});
  } else {
    findings.push_back(
        {"writable", Level::problem, "this user cannot write to it",
         fmt::format("run: {}; if the file system is read-only, set BERTH_DIR to a folder "
                     "elsewhere, the same for all users",
                     setup_command(facts.where))});
  }
  findings.push_back(check_space(facts));
  if (facts.private_harbour_reason && !facts.simulated) {
    findings.push_back(make_problem("private", {ErrorKind::io, *facts.private_harbour_reason}));
  }
  return findings;
}

Findings check_files(const std::string& path, const std::vector<IgnoredFile>& files, uid_t viewer) {
  Findings findings;
  std::map<std::string, std::size_t> leftovers;
  std::size_t left = 0;
  std::size_t untrusted = 0;
  std::vector<const IgnoredFile*> foreign;
  for (const IgnoredFile& file : files) {
    if (file.entry.leftover) {
      ++leftovers[file.entry.owner ? user_name(*file.entry.owner) : "an unknown user"];
      ++left;
    } else if (!has_harbour_prefix(file.entry.file) && !file.entry.has_live_bell) {
      foreign.push_back(&file);
    } else if (++untrusted <= kMaxShown) {
      findings.push_back(check_untrusted_file(path, file, viewer));
    }
  }
  if (untrusted > kMaxShown) {
    findings.push_back({"planted", Level::problem,
                        fmt::format("{} more files are ignored", untrusted - kMaxShown),
                        fmt::format("see: ls -la {}", shell_quote(path)), untrusted - kMaxShown});
  }
  if (!foreign.empty()) {
    findings.push_back(check_foreign_files(path, std::move(foreign), viewer));
  } else if (untrusted == 0) {
    findings.push_back({"planted", Level::ok, "no untrusted files", ""});
  }
  if (left == 0) {
    findings.push_back({"leftovers", Level::ok, "no files of clients that have ended", ""});
    return findings;
  }
  const std::string owners = join_text(leftovers, ", ", [](const auto& leftover) {
    return fmt::format("{} of {}", leftover.second, leftover.first);
  });
  findings.push_back({"leftovers", Level::note,
                      fmt::format("{} {} of clients that have ended ({}), harmless", left,
                                  left == 1 ? "file" : "files", owners),
                      "the next 'berth run' of the owner or of root removes them"});
  return findings;
}

Findings check_other_harbours(const OtherHarbours& others, const HarbourLocation& ours) {
  Findings findings;
  if (others.in_default > 0) {
    findings.push_back(
        {"harbours", Level::problem,
         fmt::format("BERTH_DIR is {}, but the default harbour {} has {}: the same GPUs may be "
                     "granted twice",
                     in_quotes(ours.path), in_quotes(others.default_path),
                     others.in_default == 1
                         ? std::string("a lease or ticket")
                         : fmt::format("{} leases and tickets", others.in_default)),
         "use one harbour: unset BERTH_DIR, or set it for all users (/etc/environment)"});
  }
  std::map<std::string, std::vector<const ForeignHolder*>> by_harbour;
  for (const ForeignHolder& holder : others.holders) by_harbour[holder.harbour].push_back(&holder);
  for (const auto& [harbour, holders] : by_harbour) {
    if (others.in_default > 0 && harbour == others.default_path) continue;  // reported above
    findings.push_back(
        {"harbours", Level::problem,
         fmt::format("{} (pid {}){} under a lease of another harbour, {}: the same GPUs may be "
                     "granted twice",
                     holders.front()->name, holders.front()->pid,
                     holders.size() > 1 ? fmt::format(" and {} more run", holders.size() - 1)
                                        : std::string(" runs"),
                     in_quotes(harbour)),
         "use one harbour: set the same BERTH_DIR for all users, or unset it"});
  }
  if (findings.empty()) {
    findings.push_back({"harbours", Level::ok, "no leases found in other harbours", ""});
  }
  return findings;
}

Findings check_limits(const LimitFacts& facts) {
  Findings findings;
  if (facts.descriptors && *facts.descriptors < kMinDescriptors) {
    findings.push_back(
        {"descriptors", Level::problem,
         fmt::format("a process can have only {} files open: the first client in the "
                     "queue needs one for each lease",
                     *facts.descriptors),
         "raise the hard limit (ulimit -Hn, /etc/security/limits.conf)"});
  } else {
    findings.push_back({"descriptors", Level::ok,
                        facts.descriptors
                            ? fmt::format("{} open files per process", *facts.descriptors)
                            : std::string("no limit on open files"),
                        ""});
  }
  if (facts.inotify_instances && *facts.inotify_instances < kMinInotifyInstances) {
    findings.push_back(
        {"inotify", Level::problem,
         fmt::format("a user can have only {} inotify instances: without one, a holder does not "
                     "detect that the files of its lease were deleted",
                     *facts.inotify_instances),
         "run: sudo sysctl fs.inotify.max_user_instances=128"});
  } else {
    findings.push_back({"inotify", Level::ok,
                        facts.inotify_instances
                            ? fmt::format("{} inotify instances per user", *facts.inotify_instances)
                            : std::string("limit of inotify instances unknown"),
                        ""});
  }
  if (facts.processes && *facts.processes < kMinProcesses) {
    findings.push_back({"processes", Level::problem,
                        fmt::format("this user can have only {} processes", *facts.processes),
                        "raise the limit (ulimit -u, /etc/security/limits.conf)"});
  } else {
    findings.push_back({"processes", Level::ok,
                        facts.processes ? fmt::format("{} processes per user", *facts.processes)
                                        : std::string("no limit on processes"),
                        ""});
  }
  return findings;
}

Findings check_links(const LinkFacts& facts) {
  Findings findings;
  if (!facts.hardlinks_protected) {
    findings.push_back({"links", Level::note,
                        "fs.protected_hardlinks is 0: users can make hard links to files of other "
                        "users, and get a better place in the queue",
                        "run: sudo sysctl -w fs.protected_hardlinks=1"});
  }
  if (!facts.symlinks_protected) {
    findings.push_back({"links", Level::note,
                        "fs.protected_symlinks is 0: programs follow symbolic links of other users "
                        "in /tmp",
                        "run: sudo sysctl -w fs.protected_symlinks=1"});
  }
  if (findings.empty()) {
    findings.push_back({"links", Level::ok, "the kernel protects links in shared directories", ""});
  }
  return findings;
}

Findings check_proc(const ProcFacts& facts) {
  Findings findings;
  if (!facts.exists) {
    findings.push_back({"proc", Level::problem, "/proc is not mounted: processes cannot be named",
                        "run: sudo mount -t proc proc /proc"});
  } else if (facts.hides_other_users || !facts.hidepid.empty()) {
    const std::string option =
        facts.hidepid.empty() ? "" : fmt::format(" (hidepid={})", facts.hidepid);
    findings.push_back(
        {"proc", Level::note,
         facts.hides_other_users
             ? fmt::format("/proc hides processes of other users{}: strangers cannot be named",
                           option)
             : fmt::format(
                   "/proc hides processes of other users from ordinary users{}: berth cannot "
                   "name strangers to them",
                   option),
         "safe to leave as it is; to show them, run: sudo mount -o remount,hidepid=0 /proc"});
  } else {
    findings.push_back({"proc", Level::ok, "/proc shows the processes of all users", ""});
  }
  if (facts.has_host_pids) {
    findings.push_back({"pid_namespace", Level::ok, "PIDs are those of the host", ""});
  } else {
    findings.push_back({"pid_namespace", Level::note,
                        "PIDs are not those of the host, as in a container: processes on the GPUs "
                        "cannot be named",
                        "to see them, start the container with --pid=host"});
  }
  return findings;
}

Findings check_cleaning(const CleaningFacts& facts) {
  if (!facts.cleaned_by_tmpfiles)
    return {{"cleaning", Level::ok, "no service is known to delete old files in it", ""}};
  if (facts.excluded) {
    return {{"cleaning", Level::ok, "systemd-tmpfiles is configured to exclude it", ""}};
  }
  return {
      {"cleaning", Level::note,
       "systemd-tmpfiles may delete files in it after some days, including those of live leases "
       "(whose holders restore them)",
       fmt::format("run: {} (excludes it from cleaning)", setup_command(facts.where))}};
}

Findings check_archive(const ArchiveFacts& facts) {
  Finding finding{"archive", Level::ok,
                  fmt::format("history and profiles: {}", in_quotes(facts.path)), ""};
  if (!facts.exists) {
    finding.text += "; it does not exist yet, the first lease creates it";
    return {finding};
  }
  const auto note = [&](const std::string& text, const std::string& remedy) {
    finding.level = Level::note;
    finding.text += text;
    if (finding.remedy.empty()) finding.remedy = remedy;
  };
  const std::string path = shell_quote(facts.path);
  if (!facts.is_directory) {
    note(fmt::format(": it is not a directory (owner: {}); history and profiles are not recorded",
                     facts.owner_name),
         facts.simulated || facts.owner == 0
             ? std::string("move it elsewhere")
             : fmt::format("run: {} (moves it aside)", setup_command(facts.where)));
    return {finding};
  }
  if (facts.owner != 0 && !facts.simulated) {
    note(fmt::format("; it belongs to {}, who can delete what is in it", facts.owner_name),
         fmt::format("run: {} (makes root the owner)", setup_command(facts.where)));
  }
  const mode_t mode = facts.mode & 07777;
  if (mode != 01777) {
    note(fmt::format("; mode {:04o}, so {}", mode,
                     (mode & 0022) != 0 && (mode & 01000) == 0
                         ? "any user can delete the files of other users"
                         : "not every user can have a folder in it"),
         fmt::format("run as {}: chmod 1777 {}", facts.owner_name, path));
  }
  if (!facts.folder_taken_by.empty()) {
    note(fmt::format("; {} made the folder with your user id, which berth ignores",
                     facts.folder_taken_by),
         fmt::format("ask {} or root to remove that folder", facts.folder_taken_by));
  }
  if (!facts.writable) note("; you cannot write to it: your leases are not recorded", "");
  if (facts.free_space && *facts.free_space < kMinSpace) {
    note(fmt::format("; only {} free: no history is written", format_size(*facts.free_space)),
         fmt::format("free space on its file system (see: df {})", path));
  }
  return {finding};
}

}  // namespace berth
