// Finds the owners of a lease among the processes above this one; see lease_owner.h.
#include "run/lease_owner.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <set>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process.h"
#include "base/read_file.h"
#include "base/users.h"
#include "harbour/safe_directory.h"

namespace berth {
namespace {

constexpr std::string_view kForRemedy = "name one with --for PID (in a shell: --for $$)";

tl::unexpected<Error> no_owner_error(std::string_view why, std::string_view remedy) {
  return fail(ErrorKind::usage,
              fmt::format("there is no process to own the lease: {}; {}", why, remedy));
}

OwnerProcess open_owner(pid_t pid, const ProcessStat& stat) {
  return {pid, open_process(pid), stat.name, stat.group, stat.session};
}

// Whether both processes run the same file with the same arguments and, as far as /proc shows it,
// from the same exec. (exec puts random addresses into the auxiliary vector; a fork keeps them.)
bool is_same_program(pid_t a, pid_t b) {
  struct stat of_a {};
  struct stat of_b {};
  if (::stat(fmt::format("/proc/{}/exe", a).c_str(), &of_a) != 0) return false;
  if (::stat(fmt::format("/proc/{}/exe", b).c_str(), &of_b) != 0) return false;
  if (!is_same_file(of_a, of_b)) return false;
  const auto read = [](pid_t pid, std::string_view file) {
    return read_proc_file(fmt::format("/proc/{}/{}", pid, file).c_str());
  };
  const auto arguments = read(a, "cmdline");
  if (!arguments || arguments != read(b, "cmdline")) return false;
  const auto vector_a = read(a, "auxv");
  const auto vector_b = read(b, "auxv");
  return !vector_a || !vector_b || vector_a == vector_b;
}

// The process that `owner` is a mere fork of, if any. That is its parent; or, if the parent has run
// another program since, the parent's parent: in `cat < <(berth acquire)` bash forks, that fork
// forks for the <( ), and only then becomes cat.
std::optional<OwnerProcess> find_fork_origin(const OwnerProcess& owner) {
  const auto stat = read_process_stat(owner.pid);
  if (!stat || stat->ran_exec) return std::nullopt;
  const auto parent = read_process_stat(stat->parent);
  if (!parent) return std::nullopt;
  OwnerProcess origin = open_owner(stat->parent, *parent);
  if (!is_same_program(owner.pid, origin.pid)) {
    const auto grandparent = read_process_stat(parent->parent);
    if (!grandparent || !is_same_program(owner.pid, parent->parent)) return std::nullopt;
    origin = open_owner(parent->parent, *grandparent);
  }
  // PIDs are reused, so check that what was read belongs to these processes. If `owner` still runs,
  // its PID meant `owner` all the time. If a process still has the same parent, that parent did not
  // end in the meantime, since the kernel replaces a parent that ends.
  const auto parent_again = read_process_stat(stat->parent);
  const auto again = read_process_stat(owner.pid);
  if (!again || again->parent != stat->parent || !parent_again ||
      parent_again->parent != parent->parent || !origin.handle || has_ended(owner.handle)) {
    return std::nullopt;
  }
  return origin;
}

// Whether `parent` did not start this process but adopted it when its parent ended: PID 1, or a
// "subreaper" such as systemd --user. A child has its parent's session unless it made its own.
// (PID 1 can also be the process that started us: the shell of a container.)
bool is_adoptive_parent(pid_t parent) {
  const pid_t session = ::getsid(0);
  if (session == ::getpid()) return parent == 1;
  return ::getsid(parent) != session;
}

Result<OwnerProcess> find_parent_of_self(std::string_view remedy) {
  constexpr std::string_view kCallerEnded = "the process that started berth has ended";
  const pid_t parent = ::getppid();
  if (parent == 0) {
    return no_owner_error("berth was started from outside this PID namespace", remedy);
  }
  if (is_adoptive_parent(parent)) return no_owner_error(kCallerEnded, remedy);
  const auto stat = read_process_stat(parent);
  OwnerProcess owner = open_owner(parent, stat.value_or(ProcessStat{}));
  // If it is still our parent, everything above was about our parent.
  if (::getppid() != parent) return no_owner_error(kCallerEnded, remedy);
  if (!owner.handle) return no_owner_error(std::strerror(errno), remedy);
  if (has_ended(owner.handle)) return no_owner_error(kCallerEnded, remedy);
  return owner;
}

OwnerProcess resolve_forks(OwnerProcess owner) {
  while (auto origin = find_fork_origin(owner)) owner = std::move(*origin);
  return owner;
}

// Whether the standard output of a process is this file; nullopt if that cannot be seen.
std::optional<bool> prints_to(pid_t pid, const struct stat& file) {
  struct stat output {};
  if (::stat(fmt::format("/proc/{}/fd/1", pid).c_str(), &output) != 0) return std::nullopt;
  return is_same_file(output, file);
}

// Whether `file` is a pipe that the process has open for reading.
bool reads_pipe(pid_t pid, const struct stat& file) {
  if (!S_ISFIFO(file.st_mode)) return false;
  namespace fs = std::filesystem;
  std::error_code problem;
  fs::directory_iterator entry(fmt::format("/proc/{}/fd", pid), problem);
  for (; !problem && entry != fs::directory_iterator(); entry.increment(problem)) {
    struct stat opened {};
    struct stat link {};  // its mode has the directions in which the file is open
    if (::stat(entry->path().c_str(), &opened) != 0 || !is_same_file(opened, file)) continue;
    if (::lstat(entry->path().c_str(), &link) == 0 && (link.st_mode & S_IRUSR) != 0) return true;
  }
  return false;
}

// The parent of `child`, if that is in the same session. A parent in another session has adopted
// the child, or is a service that ends with the child's session (sshd, cron), unless it shares the
// output with the child (setsid) or reads it.
std::optional<OwnerProcess> find_parent(const OwnerProcess& child, const struct stat& output) {
  const auto stat = read_process_stat(child.pid);
  const auto parent_stat = stat ? read_process_stat(stat->parent) : std::nullopt;
  if (!parent_stat) return std::nullopt;
  OwnerProcess parent = open_owner(stat->parent, *parent_stat);
  const auto again = read_process_stat(child.pid);
  if (!parent.handle || !again || again->parent != stat->parent || has_ended(child.handle)) {
    return std::nullopt;
  }
  const bool connected = parent.session == child.session ||
                         prints_to(parent.pid, output).value_or(false) ||
                         reads_pipe(parent.pid, output);
  if (!connected) return std::nullopt;
  return parent;
}

// A shell with job control on this terminal, which runs each command in a process group of its own.
bool is_interactive_shell(const OwnerProcess& process) {
  return ::isatty(STDOUT_FILENO) != 0 && process.pid == process.session &&
         process.group != ::getpgrp();
}

// The process above `writer` that reads the standard output of `writer` from a pipe.
std::optional<OwnerProcess> find_reader_of(const OwnerProcess& writer) {
  struct stat output {};
  if (::stat(fmt::format("/proc/{}/fd/1", writer.pid).c_str(), &output) != 0) return std::nullopt;
  auto process = find_parent(writer, output);
  while (process && prints_to(process->pid, output).value_or(true)) {
    process = find_parent(*process, output);
  }
  if (process && !reads_pipe(process->pid, output)) return std::nullopt;
  return process;
}

void add_successor(LeaseOwners& owners, std::optional<OwnerProcess> process) {
  if (!process || process->pid == owners.first.pid) return;
  const auto& known = owners.successors;
  const bool is_known = std::any_of(
      known.begin(), known.end(), [&](const OwnerProcess& one) { return one.pid == process->pid; });
  if (!is_known) owners.successors.push_back(std::move(*process));
}

// When the child of `owner` was started through which this process was called.
std::uint64_t find_call_time(const OwnerProcess& owner) {
  const auto self = read_process_stat(::getpid());
  auto earliest = self ? self->start_ticks : 0;
  for (auto stat = self; stat && stat->parent > 0; stat = read_process_stat(stat->parent)) {
    earliest = std::min(earliest, stat->start_ticks);
    if (stat->parent == owner.pid) return earliest;
  }
  return self ? self->start_ticks : 0;
}

enum class Kinship : std::uint8_t { group, session };

// Whether the process has lost its parent, and is in the group of `owner` (or in its session).
bool was_left_behind(const ProcessStat& process, const OwnerProcess& owner, Kinship kinship) {
  const bool in_session = kinship == Kinship::session || owner.pid == owner.session;
  if (in_session ? process.session != owner.session : process.group != owner.group) return false;
  return has_lost_parent(process);
}

// `vanished` is set if a process ended while this looked: it may have started another one.
std::optional<OwnerProcess> find_orphan_once(const LeaseOwners& owners, const OwnerProcess& ended,
                                             const std::set<pid_t>& busy, Kinship kinship,
                                             bool& vanished) {
  for (const pid_t pid : list_processes()) {
    const auto stat = read_process_stat(pid);
    vanished = vanished || !stat;
    if (!stat || stat->start_ticks < *owners.orphans_since || busy.contains(pid)) continue;
    if (!was_left_behind(*stat, ended, kinship)) continue;
    OwnerProcess orphan = open_owner(pid, *stat);
    const auto again = read_process_stat(pid);
    const bool is_same = orphan.handle && again && again->start_ticks == stat->start_ticks;
    if (is_same && !has_ended(orphan.handle)) return orphan;
    vanished = true;
  }
  return std::nullopt;
}

std::optional<OwnerProcess> find_orphan(const LeaseOwners& owners, const OwnerProcess& ended,
                                        const std::set<pid_t>& busy, Kinship kinship) {
  constexpr int kMaxTries = 3;
  bool vanished = true;
  for (int i = 0; i < kMaxTries && vanished; ++i) {
    vanished = false;
    if (auto orphan = find_orphan_once(owners, ended, busy, kinship, vanished)) return orphan;
  }
  return std::nullopt;
}

}  // namespace

bool has_lost_parent(const ProcessStat& process) {
  if (process.parent == 1) return true;
  const auto parent = read_process_stat(process.parent);
  return !parent || parent->session != process.session;
}

Result<OwnerProcess> open_named_process(pid_t pid, std::string_view argument) {
  OwnerProcess owner{pid, open_process(pid), "", 0, 0};
  if (!owner.handle && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
    return fail(ErrorKind::usage, fmt::format("{} {}: {}", argument, pid, std::strerror(errno)));
  }
  const auto stat = read_process_stat(pid);
  if (!owner.handle || has_ended(owner.handle)) {
    return fail(
        ErrorKind::usage,
        fmt::format("{} {}: there is no such process; name a running process", argument, pid));
  }
  // Only the process's user and root may signal it. The kernel checks this on the process itself,
  // not on its PID.
  if (send_signal(owner.handle, 0) != 0) {
    const auto uid = read_process_owner(pid);
    return fail(ErrorKind::permission,
                fmt::format("{} {}: that process belongs to {}; name one of your own", argument,
                            pid, uid ? user_name(*uid) : "another user"));
  }
  if (stat) owner.name = stat->name;
  return owner;
}

Result<OwnerProcess> find_lease_owner(std::optional<pid_t> explicit_pid) {
  if (explicit_pid) return open_named_process(*explicit_pid, "--for");
  return resolve_forks(TRY(find_parent_of_self(kForRemedy)));
}

Result<LeaseOwners> find_output_owners(std::string_view remedy) {
  const auto no_receiver = [&] {
    return no_owner_error("no process of this session that berth can see reads the output", remedy);
  };
  struct stat output {};
  if (::fstat(STDOUT_FILENO, &output) != 0) return no_owner_error(std::strerror(errno), remedy);
  // Any process can read a file; and while a command runs, its shell may have the same file as
  // standard output (dash). So what the script is cannot be seen from the output.
  const bool is_file =
      (S_ISREG(output.st_mode) || S_ISCHR(output.st_mode)) && ::isatty(STDOUT_FILENO) == 0;
  std::optional<OwnerProcess> process = TRY(find_parent_of_self(remedy));
  if (process->session != ::getsid(0) && !prints_to(process->pid, output).value_or(false) &&
      !reads_pipe(process->pid, output)) {
    return no_receiver();
  }
  std::optional<OwnerProcess> caller = resolve_forks(TRY(find_parent_of_self(remedy)));
  while (process && prints_to(process->pid, output).value_or(true) &&
         !is_interactive_shell(*process)) {
    process = find_parent(*process, output);
  }
  if (!process && !is_file) return no_receiver();
  const bool reads = process && reads_pipe(process->pid, output);
  std::optional<OwnerProcess> parent;
  if (process && !reads) {
    process = resolve_forks(std::move(*process));
    parent = find_parent(*process, output);
  }
  if (is_file) process.swap(caller);  // then the caller comes first
  LeaseOwners owners{std::move(*process)};
  owners.orphans_since = find_call_time(owners.first);
  add_successor(owners, std::move(caller));
  add_successor(owners, std::move(parent));
  add_successor(owners, find_reader_of(owners.first));
  for (std::size_t i = 0; i < owners.successors.size(); ++i) {
    add_successor(owners, find_reader_of(owners.successors[i]));
  }
  return owners;
}

std::optional<OwnerProcess> take_next_owner(LeaseOwners& owners, const OwnerProcess& ended,
                                            bool used, const std::set<pid_t>& busy) {
  const auto take_orphan = [&](Kinship kinship) {
    return owners.orphans_since ? find_orphan(owners, ended, busy, kinship) : std::nullopt;
  };
  if (auto orphan = take_orphan(Kinship::group)) return orphan;
  if (used) return std::nullopt;
  while (!owners.successors.empty()) {
    OwnerProcess next = std::move(owners.successors.front());
    owners.successors.erase(owners.successors.begin());
    if (!has_ended(next.handle)) return next;
  }
  return take_orphan(Kinship::session);
}

}  // namespace berth
