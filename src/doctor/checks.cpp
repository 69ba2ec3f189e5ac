// The checks of the harbour and of the host around it; see checks.h. The checks of GPUs, leases and
// the queue are in client_checks.cpp.
#include "doctor/checks.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

#include "base/shell.h"
#include "base/text.h"
#include "base/users.h"
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
    finding.remedy = fmt::format("{} makes it root's", setup_command(facts.where));
  }
  if (!facts.movable_by.empty() && !facts.simulated) {
    finding.level = Level::note;
    finding.text += fmt::format("; {}, who can write to the folder above it, can move it away",
                                facts.movable_by);
    if (finding.remedy.empty()) finding.remedy = "set BERTH_DIR to a folder in one of root's";
  }
  return finding;
}

Finding check_mode(const DirectoryFacts& facts) {
  const mode_t mode = facts.mode & 07777;
  const bool others_write = (mode & 0022) != 0;
  const bool sticky = (mode & 01000) != 0;
  const bool all_write = (mode & 0777) == 0777;
  Finding finding{"mode", Level::ok, fmt::format("its mode is {:04o}", mode), ""};
  if (others_write && !sticky) {
    finding.level = Level::problem;
    finding.text += ", so that anybody could delete another's lease; berth refuses it";
  } else if (!all_write) {
    // The user who chose a folder may have meant it for a group or for themselves.
    finding.level = facts.where.is_custom || facts.simulated ? Level::note : Level::problem;
    finding.text += fmt::format(", so that not every user of this host can use it");
  }
  if (finding.level != Level::ok) {
    finding.remedy = fmt::format("{} should run: chmod 1777 {}", facts.owner_name,
                                 shell_quote(facts.where.path));
    if (!facts.simulated) {
      finding.remedy += fmt::format("; or: {}", setup_command(facts.where));
    }
  }
  return finding;
}

Finding check_space(const DirectoryFacts& facts) {
  Finding finding{"space", Level::ok, "", ""};
  const Bytes space = facts.free_space.value_or(kLowSpace);
  const std::uint64_t files = facts.free_files.value_or(kLowFreeInodes);
  finding.text = facts.free_space ? fmt::format("{} are free", format_size(space))
                                  : std::string("how much is free is not known");
  if (facts.free_files) finding.text += fmt::format(", and {} inodes", files);
  if (space < kLowSpace || files < kLowFreeInodes) {
    const bool bad = space < kMinSpace || files < kMinFreeInodes;
    finding.level = bad ? Level::problem : Level::note;
    finding.text += bad ? ": too few for new requests (leases end all the same)" : ": few";
    finding.remedy = fmt::format("delete something; 'df {}' shows which file system it is",
                                 shell_quote(facts.where.path));
  }
  return finding;
}

// A command that deletes the file, safe to paste into a shell whatever the file is called.
std::string format_remove_command(const std::string& path, const IgnoredFile& file) {
  constexpr std::string_view plain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  const std::string& name = file.entry.file;
  if (name.find_first_not_of(plain) == std::string::npos && name.size() <= 64) {
    return fmt::format("rm {}{}", file.is_directory ? "-r " : "",
                       shell_quote(fmt::format("{}/{}", path, name)));
  }
  return fmt::format("find {} -maxdepth 1 -inum {} {}", shell_quote(path), file.inode,
                     file.is_directory ? "-exec rm -r {} +" : "-delete");
}

Finding check_untrusted_file(const std::string& path, const IgnoredFile& file, uid_t viewer) {
  const auto& owner = file.entry.owner;
  Finding finding{"planted", Level::problem, "", ""};
  finding.text = fmt::format("{} of {} does not count: {}", in_quotes(file.entry.file),
                             owner ? user_name(*owner) : "an unknown user", file.entry.problem);
  const std::string command = format_remove_command(path, file);
  if (file.entry.has_live_bell) {
    // Deleting the file would not end its process, which writes it again.
    finding.remedy = fmt::format("ask {} to end its process", user_name(*owner));
  } else if (viewer == 0 || owner == viewer) {
    finding.remedy = command;
  } else {
    finding.remedy = fmt::format("ask {} to remove it, or: sudo {}",
                                 owner ? user_name(*owner) : "its owner", command);
  }
  return finding;
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
                     fmt::format("{} answers, as {} says; this host is {} there", facts.name,
                                 facts.source, in_quotes(facts.host)),
                     ""}};
  if (facts.open_to_all) {
    findings.push_back({"server", Level::problem,
                        "it needs no password, and other hosts can reach it: whoever does can take "
                        "and end everybody's leases",
                        "set a password there (ACL SETUSER, or requirepass), or have it listen on "
                        "loopback alone"});
  }
  if (facts.loses_data_on_restart) {
    findings.push_back({"server", Level::note,
                        "it keeps nothing over a restart: leases are put back by their hosts, "
                        "places in the queue by who waits; drains are lost",
                        "set appendonly yes there"});
  }
  if (facts.bypassing_clients > 0) {
    findings.push_back(
        {"server", Level::problem,
         fmt::format("{} on this host {} not use it, but the directory alone: nobody is granted "
                     "what they have, but they wait in a queue of their own",
                     facts.bypassing_clients == 1
                         ? "1 lease or ticket"
                         : fmt::format("{} leases and tickets", facts.bypassing_clients),
                     facts.bypassing_clients == 1 ? "does" : "do"),
         "have their users set BERTH_URL, too, or write it in /etc/berth.toml for all"});
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
         "it has an access control list, which can hide leases from some users; berth refuses it",
         facts.simulated ? fmt::format("setfacl -bk {}", shell_quote(facts.where.path))
                         : fmt::format("{} removes the list", setup_command(facts.where))});
  } else {
    findings.push_back({"acl", Level::ok, "it has no access control list", ""});
  }
  if (facts.network_file_system) {
    findings.push_back({"file_system", Level::problem,
                        fmt::format("on a network file system ({}), where leases would not be safe",
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
         fmt::format("{}; if the file system is read-only, set BERTH_DIR to a folder "
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
  for (const IgnoredFile& file : files) {
    if (file.entry.leftover) {
      ++leftovers[file.entry.owner ? user_name(*file.entry.owner) : "nobody known"];
      ++left;
    } else if (++untrusted <= kMaxShown) {
      findings.push_back(check_untrusted_file(path, file, viewer));
    }
  }
  if (untrusted > kMaxShown) {
    findings.push_back({"planted", Level::problem,
                        fmt::format("{} more files do not count", untrusted - kMaxShown),
                        fmt::format("see: ls -la {}", shell_quote(path))});
  } else if (untrusted == 0) {
    findings.push_back({"planted", Level::ok, "nobody planted anything in it", ""});
  }
  if (left == 0) {
    findings.push_back({"leftovers", Level::ok, "no files of dead clients", ""});
    return findings;
  }
  const std::string owners = join_text(leftovers, ", ", [](const auto& leftover) {
    return fmt::format("{} of {}", leftover.second, leftover.first);
  });
  findings.push_back({"leftovers", Level::note,
                      fmt::format("{} {} of dead clients ({}), which {} no harm", left,
                                  left == 1 ? "file" : "files", owners, left == 1 ? "does" : "do"),
                      "the next 'berth run' of their owner, or of root, removes them"});
  return findings;
}

Findings check_other_harbours(const OtherHarbours& others, const HarbourLocation& ours) {
  Findings findings;
  if (others.in_default > 0) {
    findings.push_back(
        {"harbours", Level::problem,
         fmt::format("BERTH_DIR names {}, but {} live in the default harbour {}: the same GPUs may "
                     "be granted twice",
                     in_quotes(ours.path),
                     others.in_default == 1
                         ? std::string("a lease or ticket")
                         : fmt::format("{} leases and tickets", others.in_default),
                     in_quotes(others.default_path)),
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
         "use one harbour: the same BERTH_DIR for all users, or none"});
  }
  if (findings.empty()) {
    findings.push_back({"harbours", Level::ok, "no leases in another harbour are to be seen", ""});
  }
  return findings;
}

Findings check_limits(const LimitFacts& facts) {
  Findings findings;
  if (facts.descriptors && *facts.descriptors < kMinDescriptors) {
    findings.push_back({"descriptors", Level::problem,
                        fmt::format("at most {} files may be open: who is first in the queue needs "
                                    "one per lease",
                                    *facts.descriptors),
                        "raise the hard limit (ulimit -Hn, /etc/security/limits.conf)"});
  } else {
    findings.push_back({"descriptors", Level::ok,
                        facts.descriptors ? fmt::format("{} files may be open", *facts.descriptors)
                                          : std::string("any number of files may be open"),
                        ""});
  }
  if (facts.inotify_instances && *facts.inotify_instances < kMinInotifyInstances) {
    findings.push_back(
        {"inotify", Level::problem,
         fmt::format("a user may have only {} inotify instances: without one, a lease does not "
                     "notice that its files were deleted",
                     *facts.inotify_instances),
         "sudo sysctl fs.inotify.max_user_instances=128"});
  } else {
    findings.push_back({"inotify", Level::ok,
                        facts.inotify_instances
                            ? fmt::format("{} inotify instances per user", *facts.inotify_instances)
                            : std::string("how many inotify instances there may be is not known"),
                        ""});
  }
  if (facts.processes && *facts.processes < kMinProcesses) {
    findings.push_back({"processes", Level::problem,
                        fmt::format("this user may have only {} processes", *facts.processes),
                        "raise the limit (ulimit -u, /etc/security/limits.conf)"});
  } else {
    findings.push_back({"processes", Level::ok,
                        facts.processes ? fmt::format("{} processes per user", *facts.processes)
                                        : std::string("any number of processes"),
                        ""});
  }
  return findings;
}

Findings check_links(const LinkFacts& facts) {
  Findings findings;
  if (!facts.hardlinks_protected) {
    findings.push_back({"links", Level::note,
                        "fs.protected_hardlinks is 0: users can make hard links to other users' "
                        "files, and prepare a place in the queue",
                        "sudo sysctl -w fs.protected_hardlinks=1"});
  }
  if (!facts.symlinks_protected) {
    findings.push_back({"links", Level::note,
                        "fs.protected_symlinks is 0: programs follow other users' symbolic links "
                        "in /tmp",
                        "sudo sysctl -w fs.protected_symlinks=1"});
  }
  if (findings.empty()) {
    findings.push_back({"links", Level::ok, "the kernel protects links in shared directories", ""});
  }
  return findings;
}

Findings check_proc(const ProcFacts& facts) {
  Findings findings;
  if (!facts.exists) {
    findings.push_back({"proc", Level::problem, "/proc is not there: no process can be named",
                        "sudo mount -t proc proc /proc"});
  } else if (facts.hides_other_users || !facts.hidepid.empty()) {
    const std::string option =
        facts.hidepid.empty() ? "" : fmt::format(" (hidepid={})", facts.hidepid);
    findings.push_back(
        {"proc", Level::note,
         facts.hides_other_users
             ? fmt::format("/proc hides the processes of others{}: strangers cannot be named",
                           option)
             : fmt::format(
                   "/proc hides the processes of others from ordinary users{}: they are not "
                   "told who a stranger is",
                   option),
         "it is safe to leave it so; sudo mount -o remount,hidepid=0 /proc shows them"});
  } else {
    findings.push_back({"proc", Level::ok, "/proc shows the processes of all users", ""});
  }
  if (facts.has_host_pids) {
    findings.push_back({"pid_namespace", Level::ok, "PIDs are the host's", ""});
  } else {
    findings.push_back({"pid_namespace", Level::note,
                        "PIDs are not the host's, as in a container: processes on the GPUs cannot "
                        "be named",
                        "to see them, start the container with --pid=host"});
  }
  return findings;
}

Findings check_cleaning(const CleaningFacts& facts) {
  if (!facts.cleaned_by_tmpfiles)
    return {{"cleaning", Level::ok, "nothing is known to clean it by age", ""}};
  if (facts.excluded) {
    return {{"cleaning", Level::ok, "systemd-tmpfiles is told to leave it alone", ""}};
  }
  return {{"cleaning", Level::note,
           "systemd-tmpfiles may delete files in it that are some days old, also those of live "
           "leases (which put them back)",
           fmt::format("{} excludes it", setup_command(facts.where))}};
}

Findings check_archive(const ArchiveFacts& facts) {
  Finding finding{"archive", Level::ok,
                  fmt::format("history and profiles: {}", in_quotes(facts.path)), ""};
  if (!facts.exists) {
    finding.text += "; it is not there yet, and the first lease makes it";
    return {finding};
  }
  const auto note = [&](const std::string& text, const std::string& remedy) {
    finding.level = Level::note;
    finding.text += text;
    if (finding.remedy.empty()) finding.remedy = remedy;
  };
  const std::string path = shell_quote(facts.path);
  if (!facts.is_directory) {
    note(fmt::format(": it is not a directory, but something that {} put there; nothing is kept",
                     facts.owner_name),
         facts.simulated || facts.owner == 0
             ? std::string("move it away")
             : fmt::format("{} moves it aside", setup_command(facts.where)));
    return {finding};
  }
  if (facts.owner != 0 && !facts.simulated) {
    note(fmt::format("; it belongs to {}, who can delete what is in it", facts.owner_name),
         fmt::format("{} makes it root's", setup_command(facts.where)));
  }
  const mode_t mode = facts.mode & 07777;
  if (mode != 01777) {
    note(fmt::format("; its mode is {:04o}, so that {}", mode,
                     (mode & 0022) != 0 && (mode & 01000) == 0 ? "anybody can delete another's"
                                                               : "not every user has one"),
         fmt::format("{} should run: chmod 1777 {}", facts.owner_name, path));
  }
  if (!facts.folder_taken_by.empty()) {
    note(fmt::format("; {} has made a folder under your name, which does not count",
                     facts.folder_taken_by),
         fmt::format("ask {} to remove it, or root", facts.folder_taken_by));
  }
  if (!facts.writable) note("; you cannot write there: your leases leave no trace", "");
  if (facts.free_space && *facts.free_space < kMinSpace) {
    note(fmt::format("; {} are free: nothing more is written", format_size(*facts.free_space)),
         fmt::format("delete something; 'df {}' shows which file system it is", path));
  }
  return {finding};
}

}  // namespace berth
