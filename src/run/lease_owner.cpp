// Finds the shell that the calling process is a fork of; see lease_owner.h.
#include "run/lease_owner.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "base/process.h"
#include "harbour/safe_directory.h"

namespace berth {
namespace {

tl::unexpected<Error> no_owner_error(std::string_view why) {
  return fail(ErrorKind::usage,
              fmt::format("there is no process to own the lease: {}; name one with --for PID (in a "
                          "shell: --for $$)",
                          why));
}

// The whole contents of a file in /proc/PID; nullopt if it cannot be read.
std::optional<std::string> read_proc_file(pid_t pid, std::string_view file) {
  const UniqueFd opened(
      ::open(fmt::format("/proc/{}/{}", pid, file).c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened) return std::nullopt;
  std::string text;
  std::array<char, 4096> buffer{};
  for (;;) {
    const auto got = ::read(opened.get(), buffer.data(), buffer.size());
    if (got < 0) return std::nullopt;
    if (got == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

// Whether both processes run the same file with the same arguments and, as far as /proc shows it,
// from the same exec. (exec puts random addresses into the auxiliary vector; a fork keeps them.)
bool is_same_program(pid_t a, pid_t b) {
  struct stat of_a {};
  struct stat of_b {};
  if (::stat(fmt::format("/proc/{}/exe", a).c_str(), &of_a) != 0) return false;
  if (::stat(fmt::format("/proc/{}/exe", b).c_str(), &of_b) != 0) return false;
  if (!is_same_file(of_a, of_b)) return false;
  const auto arguments = read_proc_file(a, "cmdline");
  if (!arguments || arguments != read_proc_file(b, "cmdline")) return false;
  const auto vector_a = read_proc_file(a, "auxv");
  const auto vector_b = read_proc_file(b, "auxv");
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
  OwnerProcess origin{stat->parent, open_process(stat->parent), parent->name};
  if (!is_same_program(owner.pid, origin.pid)) {
    const auto grandparent = read_process_stat(parent->parent);
    if (!grandparent || !is_same_program(owner.pid, parent->parent)) return std::nullopt;
    origin = {parent->parent, open_process(parent->parent), grandparent->name};
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

Result<OwnerProcess> find_calling_process() {
  constexpr std::string_view kCallerEnded = "the process that started berth has ended";
  const pid_t parent = ::getppid();
  if (parent == 0) return no_owner_error("berth was started from outside this PID namespace");
  if (is_adoptive_parent(parent)) return no_owner_error(kCallerEnded);
  const auto stat = read_process_stat(parent);
  OwnerProcess owner{parent, open_process(parent), stat ? stat->name : ""};
  if (::getppid() != parent)
    return no_owner_error(
        kCallerEnded);  // if it is still our parent, everything above was about our parent
  if (!owner.handle) return no_owner_error(std::strerror(errno));
  while (auto origin = find_fork_origin(owner)) owner = std::move(*origin);
  if (has_ended(owner.handle)) return no_owner_error(kCallerEnded);
  return owner;
}

Result<OwnerProcess> open_named_process(pid_t pid) {
  OwnerProcess owner{pid, open_process(pid), ""};
  if (!owner.handle && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
    return fail(ErrorKind::usage, fmt::format("--for {}: {}", pid, std::strerror(errno)));
  }
  const auto stat = read_process_stat(pid);
  if (!owner.handle || has_ended(owner.handle)) {
    return fail(ErrorKind::usage,
                fmt::format("--for {}: there is no such process; name a running process", pid));
  }
  // Only the process's user and root may signal it. The kernel checks this on the process itself,
  // not on its PID.
  if (send_signal(owner.handle, 0) != 0) {
    return fail(
        ErrorKind::permission,
        fmt::format("--for {}: that process belongs to another user; name one of your own", pid));
  }
  if (stat) owner.name = stat->name;
  return owner;
}

}  // namespace

Result<OwnerProcess> find_lease_owner(std::optional<pid_t> explicit_pid) {
  return explicit_pid ? open_named_process(*explicit_pid) : find_calling_process();
}

}  // namespace berth
