// The helper process that holds the driver's session, and the client side; see guarded_probe.h.
#include "devices/guarded_probe.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "base/process.h"
#include "devices/helper_process.h"
#include "devices/nvml_session.h"
#include "devices/wire.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kSnapshotQuery = 's';
constexpr char kTopologyQuery = 't';
constexpr char kSampleQuery = 'u';  // followed by the UUIDs: a size, and as many bytes
constexpr const char* kExitWhenIdle = "leaves";
constexpr std::uint32_t kMaxReplySize = 64 << 20;  // far above the reply of a correct driver
constexpr std::uint32_t kMaxQuerySize = 1 << 20;

// A Python program with a lease may run for days. Its helper exits earlier, because an open session
// costs the driver memory.
constexpr std::chrono::seconds kIdleTimeout(10);

// A prefetched snapshot expires: the caller may use it much later.
constexpr std::chrono::seconds kPrefetchLifetime(1);

// The time that a child may take to exit after it closed its socket: the kernel closes the driver's
// devices after the socket, which takes long with many GPUs.
constexpr std::chrono::seconds kExitTimeout(2);

std::string with_length_prefix(const std::string& bytes) {
  const auto size = static_cast<std::uint32_t>(bytes.size());
  std::string message(reinterpret_cast<const char*>(&size), sizeof size);
  message += bytes;
  return message;
}

// Reads the rest of a kSampleQuery. Empty if the message is malformed.
std::vector<std::string> receive_uuids(int socket) {
  std::uint32_t size = 0;
  std::vector<std::string> uuids;
  if (::recv(socket, &size, sizeof size, MSG_WAITALL) != sizeof size || size > kMaxQuerySize) {
    return uuids;
  }
  std::string bytes(size, '\0');
  if (::recv(socket, bytes.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size)) {
    wire::Reader reader(bytes);
    reader(uuids);
  }
  return uuids;
}

std::string answer_query(char query, NvmlSession& session, int socket) {
  if (query == kTopologyQuery) return wire::pack(session.topology());
  if (query == kSampleQuery) return wire::pack(session.sample(receive_uuids(socket)));
  return wire::pack(session.snapshot());
}

}  // namespace

// Answers queries until the parent closes its socket. If the helper is a program of its own, it
// also exits after kIdleTimeout without a query.
void serve_probe(int socket, const HelperArguments& arguments) {
  NvmlSession session(arguments.at(0));
  const bool exits_when_idle = arguments.at(1) == kExitWhenIdle;
  char query = 0;
  const auto deadline = [&] {
    return exits_when_idle ? Clock::now() + kIdleTimeout : Clock::time_point::max();
  };
  // A second query often follows at once; a Python program takes slightly longer to send it.
  const std::chrono::microseconds spin_time(exits_when_idle ? 1000 : 200);
  while (wait_readable(socket, deadline(), -1, spin_time) && ::recv(socket, &query, 1, 0) == 1) {
    if (!send_all(socket, with_length_prefix(answer_query(query, session, socket)))) break;
  }
}

GuardedProbe::~GuardedProbe() {
  stop();
  kill_helper(exiting_child_);
}

Result<void> GuardedProbe::start() {
  drop_child_if_forked();
  if (socket_) return {};
  HelperProcess helper = TRY(start_helper(
      kProbeHelper, {settings_.library, settings_.program.empty() ? "" : kExitWhenIdle},
      settings_.program));
  socket_ = std::move(helper.socket);
  handle_ = std::move(helper.handle);
  owner_pid_ = ::getpid();
  has_replied_ = false;
  return {};
}

// After a fork, the child belongs to the parent process, which may be in the middle of a query.
void GuardedProbe::drop_child_if_forked() {
  if (owner_pid_ == ::getpid()) return;
  socket_.reset();
  exiting_child_.reset();
  handle_.reset();
  prefetched_at_.reset();
}

// Kills the child without waiting for its exit, which takes long with 8 open GPUs. But a child that
// has not replied yet may still hold descriptors of this process, such as a bell: stop() waits for
// that one.
void GuardedProbe::stop() {
  drop_child_if_forked();
  prefetched_at_.reset();
  if (!socket_) return;
  socket_.reset();
  kill_helper(std::exchange(exiting_child_, std::move(handle_)));
  send_signal(exiting_child_, SIGKILL);
  if (!has_replied_) kill_helper(std::exchange(exiting_child_, UniqueFd()));
}

void GuardedProbe::abandon_query() {
  if (!has_replied_) stop();
}

// Call this when the socket is closed or the child does not read a query. The child may still run:
// it may have closed the socket and hang, in the driver or while it exits. This waits for its exit
// until the query's deadline, and at most kExitTimeout.
Error GuardedProbe::handle_lost_connection(Clock::time_point begin) {
  const auto deadline = std::min(begin + settings_.timeout, Clock::now() + kExitTimeout);
  const auto info = reap_helper(handle_, deadline);
  const bool still_runs = !info && handle_ && !has_ended(handle_);
  const bool exited = info && info->si_code == CLD_EXITED;
  // Without `info`, the host program has reaped the child.
  const bool exited_cleanly = !still_runs && (!info || (exited && info->si_status == 0));
  exited_when_idle_ = exited_cleanly && has_replied_ && !settings_.program.empty();
  if (still_runs) {
    stop();
    return {ErrorKind::no_driver,
            "the helper process that queries the NVIDIA driver closed its connection, but does not "
            "exit; the driver may hang (see dmesg | grep NVRM), or its library may be broken"};
  }
  prefetched_at_.reset();
  socket_.reset();
  handle_.reset();
  if (info && !exited && info->si_status == SIGKILL) {
    return {ErrorKind::no_driver,
            "the helper process that queries the NVIDIA driver was killed; check whether this host "
            "is out of memory (dmesg | grep -i oom)"};
  }
  if (info && !exited) {
    return {ErrorKind::no_driver,
            fmt::format("the NVIDIA driver's library crashed (signal {}); reinstall the driver, or "
                        "see the kernel log (dmesg)",
                        info->si_status)};
  }
  return {ErrorKind::no_driver,
          "the helper process that queries the NVIDIA driver ended unexpectedly; try again"};
}

Error GuardedProbe::handle_timeout() {
  stop();
  return {ErrorKind::no_driver,
          fmt::format("the NVIDIA driver did not answer within {}; it may hang (see dmesg | grep "
                      "NVRM) or start slowly (to wait longer, set BERTH_DRIVER_TIMEOUT=60s)",
                      format_duration(settings_.timeout))};
}

// True when the socket is readable; false at the deadline, or when the wait is interrupted.
bool GuardedProbe::wait_for_reply(Clock::time_point deadline) {
  for (;;) {
    if (wait_readable(socket_.get(), deadline, interrupt_fd_)) return true;
    if (Clock::now() >= deadline || !confirm_interrupt_ || confirm_interrupt_()) return false;
  }
}

// Receives exactly `size` bytes of the reply to a query that was sent at `begin`.
Result<std::string> GuardedProbe::receive_bytes(std::size_t size, Clock::time_point begin) {
  std::string bytes(size, '\0');
  std::size_t received = 0;
  // Set at the timeout: a reply that has arrived by then may be read until this later time.
  std::optional<Clock::time_point> read_deadline;
  while (received < size) {
    const auto slow_at = begin + std::min(settings_.slow_after, settings_.timeout);
    if (!wait_for_reply(slow_at)) {
      const bool was_interrupted = Clock::now() < slow_at;
      if (!was_interrupted && settings_.on_slow && !std::exchange(slow_reported_, true))
        settings_.on_slow();
      if (was_interrupted || !wait_for_reply(begin + settings_.timeout)) {
        return tl::make_unexpected(handle_timeout());
      }
    }
    const auto got = receive_some(socket_.get(), bytes.data() + received, size - received);
    if (got < 0 && errno == EAGAIN) continue;
    if (got <= 0) return tl::make_unexpected(handle_lost_connection(begin));
    received += static_cast<std::size_t>(got);
    const auto now = Clock::now();
    if (now < begin + settings_.timeout) continue;
    if (!read_deadline) read_deadline = now + kLateReadTimeout;
    if (received < size && now > *read_deadline) return tl::make_unexpected(handle_timeout());
  }
  return bytes;
}

Result<std::string> GuardedProbe::receive_reply(Clock::time_point begin) {
  slow_reported_ = false;
  const std::string header = TRY(receive_bytes(sizeof(std::uint32_t), begin));
  std::uint32_t size = 0;
  std::memcpy(&size, header.data(), sizeof size);
  has_replied_ = true;
  return receive_bytes(std::min(size, kMaxReplySize), begin);
}

Result<std::string> GuardedProbe::query(const std::string& message) {
  const auto begin = Clock::now();
  auto reply = query_once(message, begin);
  if (!reply && std::exchange(exited_when_idle_, false)) return query_once(message, begin);
  return reply;
}

Result<std::string> GuardedProbe::query_once(const std::string& message, Clock::time_point begin) {
  TRY(start());
  if (const auto prefetched_at = std::exchange(prefetched_at_, std::nullopt)) {
    const bool fresh = Clock::now() - *prefetched_at < kPrefetchLifetime;
    auto prefetched = receive_reply(begin);
    if ((message.front() == kSnapshotQuery && fresh) || !prefetched) return prefetched;
  }
  if (!send_all(socket_.get(), message, begin + settings_.timeout)) {
    return tl::make_unexpected(handle_lost_connection(begin));
  }
  return receive_reply(begin);
}

void GuardedProbe::prefetch_snapshot() {
  if (prefetched_at_ || !start()) return;  // snapshot() reports an error of start()
  const auto now = Clock::now();
  if (send_all(socket_.get(), {&kSnapshotQuery, 1}, now)) prefetched_at_ = now;
}

template <class T>
Result<T> GuardedProbe::query_as(const std::string& message) {
  auto answer = wire::unpack<T>(TRY(query(message)));
  if (answer) return std::move(*answer);
  stop();
  return fail(ErrorKind::no_driver,
              "the NVIDIA driver's library corrupted its helper process; reinstall the driver");
}

Result<Snapshot> GuardedProbe::snapshot() {
  return query_as<Snapshot>({kSnapshotQuery});
}

Result<Topology> GuardedProbe::topology() {
  return query_as<Topology>({kTopologyQuery});
}

Result<std::vector<GpuSample>> GuardedProbe::sample(const std::vector<std::string>& uuids) {
  wire::Writer writer;
  writer(uuids);
  return query_as<std::vector<GpuSample>>(
      fmt::format("{}{}", kSampleQuery, with_length_prefix(writer.release_bytes())));
}

}  // namespace berth
