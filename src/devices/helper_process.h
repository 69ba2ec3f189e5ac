// A child process for work that must not be done in berth itself: calls into a driver.
//
// A driver can hang in an uninterruptible wait, where not even kill -9 ends it, and a process with
// such a thread cannot exit either. It can crash. So whatever calls a driver runs in a child that
// its parent can leave behind.
//
// The berth program forks itself, which is fastest. A library in another program must not:
// that process may be large, have threads that hold locks, or have started CUDA, which does not
// survive a fork. It starts the berth program instead.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <signal.h>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace berth {

struct HelperProcess {
  pid_t pid = -1;
  UniqueFd socket;  // the parent's end; closed, it tells a helper that listens to leave
  UniqueFd handle;  // from open_process(); empty if the host program has collected the child
};

// What a helper does: its end of the socket, and what it needs to know.
using HelperArguments = std::vector<std::string>;
using HelperWork = void (*)(int socket, const HelperArguments& arguments);

struct Helper {
  const char* name;  // at most 15 bytes: what ps shows, and by which a program finds its work
  HelperWork work;
};

// Starts a child that does the helper's work, and then exits: a fork of this process, or the berth
// program at the path `program`. The child holds no descriptor of the parent's (no bell, no lock,
// no pipe with a reader), has no terminal and no signal handlers, and is killed when the
// calling thread ends. The error is ErrorKind::no_driver.
Result<HelperProcess> start_helper(const Helper& helper, const HelperArguments& arguments,
                                   const std::string& program);

// For main(): whether the command line is that of a helper, and to be one of these.
bool is_helper(int argc, const char* const* argv);
int run_helper(int argc, const char* const* argv, const std::vector<Helper>& helpers);

// Kills a child and collects it. A child that cannot end is not waited for for long, and left to
// init. `handle` is from open_process().
void kill_helper(const UniqueFd& handle);

// Waits until a child has ended, and collects it: what waitid(2) says, or nothing if the child
// still runs when the time is up, or has been collected elsewhere in this process.
std::optional<siginfo_t> reap_helper(const UniqueFd& handle,
                                     std::chrono::steady_clock::time_point deadline);

// How long reading an answer may take after the time limit, if it arrived while this process was
// stopped.
constexpr std::chrono::milliseconds kLateReadTimeout(500);

// Sends everything; false if the other end is gone, or does not read in time.
bool send_all(
    int socket, std::string_view bytes,
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max());

// Takes what has arrived, as recv(2), and never blocks: 0 at the end of the stream, -1 if nothing
// has arrived (errno EAGAIN) or the socket fails.
ssize_t receive_some(int socket, char* buffer, std::size_t size);

// True once `fd` can be read, or its other end is gone; false if neither when the time is up. Data
// that has arrived counts even after that time: this process may have been stopped meanwhile. So a
// caller that reads in a loop needs a limit of its own. If `interrupt` is not -1, the wait also
// ends, with false, when that descriptor can be read. The wait polls without sleeping for the time
// `spin_time` at first: sleeping and waking takes longer than a driver that is awake takes to
// answer.
bool wait_readable(int fd, std::chrono::steady_clock::time_point deadline, int interrupt = -1,
                   std::chrono::microseconds spin_time = std::chrono::microseconds(200));

}  // namespace berth
