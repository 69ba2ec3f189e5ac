// Child processes for calls into a driver, which must not run in the process of Berth itself.
//
// A driver can hang in an uninterruptible wait that even kill -9 does not end, and a process with
// such a thread cannot exit. It can also crash. So all code that calls a driver runs in a child
// that its parent can abandon.
//
// The berth program forks itself, which is fastest. A library in another program must not fork:
// that process may be large, have threads that hold locks, or have started CUDA, which does not
// survive a fork. The library starts the berth program instead.
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
  UniqueFd socket;  // the parent's end; a helper that reads its end exits when this is closed
  UniqueFd handle;  // from open_process(); empty if the child was reaped elsewhere
};

// The code that runs in the helper process. `socket` is the child's end.
using HelperArguments = std::vector<std::string>;
using HelperWork = void (*)(int socket, const HelperArguments& arguments);

struct Helper {
  const char* name;  // at most 15 bytes: shown by ps, and the key by which run_helper() selects
  HelperWork work;
};

// Starts a child that does the helper's work and then exits: a fork of this process if `program` is
// empty, or else the berth program at that path. The child holds no descriptor of the parent (no
// bell, no lock, no pipe with a reader), has its own process group and no signal handlers, and the
// kernel kills it when the calling thread ends. Errors are ErrorKind::no_driver.
Result<HelperProcess> start_helper(const Helper& helper, const HelperArguments& arguments,
                                   const std::string& program);

// For main(): whether the command line is that of a helper, and the code that runs it.
bool is_helper(int argc, const char* const* argv);
int run_helper(int argc, const char* const* argv, const std::vector<Helper>& helpers);

// Kills and reaps a child. Waits only a short time for a child that cannot exit; init reaps that
// one. `handle` comes from open_process() and may be empty.
void kill_helper(const UniqueFd& handle);

// Waits for the exit of a child and reaps it. Returns the result of waitid(2), or nullopt if the
// child still runs at the deadline or other code of this process has reaped it.
std::optional<siginfo_t> reap_helper(const UniqueFd& handle,
                                     std::chrono::steady_clock::time_point deadline);

// The time for reading a reply after its deadline, if it arrived while this process was stopped.
constexpr std::chrono::milliseconds kLateReadTimeout(500);

// Sends all bytes; false if the other end is closed, or does not read them by the deadline.
bool send_all(
    int socket, std::string_view bytes,
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max());

// Like recv(2), but never blocks: 0 at the end of the stream, -1 if no data has arrived (errno
// EAGAIN) or the socket fails.
ssize_t receive_some(int socket, char* buffer, std::size_t size);

// True when `fd` is readable or its other end is closed; false if neither holds at the deadline.
// Data that has arrived counts even after the deadline, because this process may have been stopped
// meanwhile; so a caller that reads in a loop needs a limit of its own. If `interrupt` is not -1,
// the wait also ends, with false, when that descriptor is readable. The wait begins with polling
// without sleep for `spin_time`: to sleep and wake takes longer than the reply of a driver whose
// session is open.
bool wait_readable(int fd, std::chrono::steady_clock::time_point deadline, int interrupt = -1,
                   std::chrono::microseconds spin_time = std::chrono::microseconds(200));

}  // namespace berth
