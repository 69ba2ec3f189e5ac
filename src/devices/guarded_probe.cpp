// The child with the driver's session, and the parent that asks it; see guarded_probe.h.
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

constexpr char kSnapshot = 's';
constexpr char kTopology = 't';
constexpr char kUse = 'u';  // and of which GPUs: a size, and as many bytes
constexpr const char* kLeaves = "leaves";
constexpr std::uint32_t kLargestAnswer = 64 << 20;  // a sane driver stays far below
constexpr std::uint32_t kLargestQuestion = 1 << 20;

// A Python program that has leased may run for days: its helper does not sit there as long, with a
// session that costs the driver memory.
constexpr std::chrono::seconds kIdle(10);

// A prefetched snapshot expires: the caller may use it much later.
constexpr std::chrono::seconds kFresh(1);

// How long a child may take to exit after it closed its socket: the kernel closes the driver's
// devices after the socket, which takes a while with many GPUs.
constexpr std::chrono::seconds kExit(2);

// With its size before it.
std::string sized(const std::string& bytes) {
  const auto size = static_cast<std::uint32_t>(bytes.size());
  std::string message(reinterpret_cast<const char*>(&size), sizeof size);
  message += bytes;
  return message;
}

// The GPUs that a question is about.
std::vector<std::string> receive_uuids(int socket) {
  std::uint32_t size = 0;
  std::vector<std::string> uuids;
  if (::recv(socket, &size, sizeof size, MSG_WAITALL) != sizeof size || size > kLargestQuestion) {
    return uuids;
  }
  std::string bytes(size, '\0');
  if (::recv(socket, bytes.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size)) {
    wire::Reader reader(bytes);
    reader(uuids);
  }
  return uuids;
}

std::string answer_to(char question, NvmlSession& session, int socket) {
  if (question == kTopology) return wire::pack(session.topology());
  if (question == kUse) return wire::pack(session.use(receive_uuids(socket)));
  return wire::pack(session.snapshot());
}

}  // namespace

// Answers questions until the parent's end is gone, or no question has come for kIdle.
void serve_probe(int socket, const HelperArguments& arguments) {
  NvmlSession session(arguments.at(0));
  const bool leaves = arguments.at(1) == kLeaves;
  char question = 0;
  const auto until = [&] { return leaves ? Clock::now() + kIdle : Clock::time_point::max(); };
  // A second question often follows at once; a Python program takes a little longer to ask it.
  const std::chrono::microseconds awake(leaves ? 1000 : 200);
  while (wait_readable(socket, until(), -1, awake) && ::recv(socket, &question, 1, 0) == 1) {
    if (!send_all(socket, sized(answer_to(question, session, socket)))) break;
  }
}

GuardedProbe::~GuardedProbe() {
  stop();
  end_helper(ending_);
}

Result<void> GuardedProbe::start() {
  forget_if_forked();
  if (socket_) return {};
  auto helper =
      start_helper(kProbeHelper, {settings_.library, settings_.program.empty() ? "" : kLeaves},
                   settings_.program);
  if (!helper) return tl::make_unexpected(helper.error());
  socket_ = std::move(helper->socket);
  handle_ = std::move(helper->handle);
  owner_ = ::getpid();
  answered_ = false;
  return {};
}

// The child is the parent's, which may be in the middle of a question.
void GuardedProbe::forget_if_forked() {
  if (owner_ == ::getpid()) return;
  socket_.reset();
  ending_.reset();
  handle_.reset();
  prepared_.reset();
}

// Ends the child, and does not wait for that: a process with 8 GPUs open takes a while to go.
// Unless it has only been forked: then it may hold what is ours, such as a bell, until it is gone.
void GuardedProbe::stop() {
  forget_if_forked();
  prepared_.reset();
  if (!socket_) return;
  socket_.reset();
  end_helper(std::exchange(ending_, std::move(handle_)));
  send_signal(ending_, SIGKILL);
  if (!answered_) end_helper(std::exchange(ending_, UniqueFd()));
}

// The socket is closed, or the child does not read its question. The child may still run: it can
// have closed the socket and hang, in the driver or while it exits. It is waited for only as long
// as for an answer, and at most kExit.
Error GuardedProbe::connection_lost(Clock::time_point begin) {
  const auto until = std::min(begin + settings_.limit, Clock::now() + kExit);
  const auto info = collect_helper(handle_, until);
  const bool runs = !info && handle_ && !has_ended(handle_);
  const bool exited = info && info->si_code == CLD_EXITED;
  // Without `info` the host program has collected the child before us.
  const bool quietly = !runs && (!info || (exited && info->si_status == 0));
  left_ = quietly && answered_ && !settings_.program.empty();
  if (runs) {
    stop();
    return {ErrorKind::no_driver,
            "the process that asks the NVIDIA driver closed its connection and does not end: the "
            "driver may hang (see dmesg | grep NVRM), or its library is broken: reinstall it"};
  }
  prepared_.reset();
  socket_.reset();
  handle_.reset();
  if (info && !exited && info->si_status == SIGKILL) {
    return {ErrorKind::no_driver,
            "the process that asks the NVIDIA driver was killed; try again, and see whether this "
            "host is out of memory (dmesg | grep -i oom)"};
  }
  if (info && !exited) {
    return {ErrorKind::no_driver,
            fmt::format("the NVIDIA driver's library crashed (signal {}); reinstall the driver, or "
                        "see the kernel's log (dmesg)",
                        info->si_status)};
  }
  return {ErrorKind::no_driver,
          "the process that asks the NVIDIA driver ended unexpectedly; try again"};
}

Error GuardedProbe::timed_out() {
  stop();
  return {ErrorKind::no_driver,
          fmt::format("the NVIDIA driver did not answer within {}; it may hang (see dmesg | grep "
                      "NVRM), or be slow to start: BERTH_DRIVER_TIMEOUT=60s waits longer",
                      format_duration(settings_.limit))};
}

// True once there is something to read; false if not by then, or if it is time to leave.
bool GuardedProbe::wait_for_answer(Clock::time_point until) {
  for (;;) {
    if (wait_readable(socket_.get(), until, interrupt_)) return true;
    if (Clock::now() >= until || !leaves_ || leaves_()) return false;
  }
}

// Receives exactly `size` bytes of the answer to a question that was asked at `begin`.
Result<std::string> GuardedProbe::receive(std::size_t size, Clock::time_point begin) {
  std::string bytes(size, '\0');
  std::size_t have = 0;
  std::optional<Clock::time_point> last;  // an answer in time may be read so long after the limit
  while (have < size) {
    const auto slow = begin + std::min(settings_.slow_after, settings_.limit);
    if (!wait_for_answer(slow)) {
      const bool soon = Clock::now() < slow;  // then it was interrupted
      if (!soon && settings_.on_slow && !std::exchange(told_, true)) settings_.on_slow();
      if (soon || !wait_for_answer(begin + settings_.limit)) {
        return tl::make_unexpected(timed_out());
      }
    }
    const auto got = receive_some(socket_.get(), bytes.data() + have, size - have);
    if (got < 0 && errno == EAGAIN) continue;
    if (got <= 0) return tl::make_unexpected(connection_lost(begin));
    have += static_cast<std::size_t>(got);
    const auto now = Clock::now();
    if (now < begin + settings_.limit) continue;
    if (!last) last = now + kLateReading;
    if (have < size && now > *last) return tl::make_unexpected(timed_out());
  }
  return bytes;
}

Result<std::string> GuardedProbe::answer(Clock::time_point begin) {
  told_ = false;
  auto header = receive(sizeof(std::uint32_t), begin);
  if (!header) return header;
  std::uint32_t size = 0;
  std::memcpy(&size, header->data(), sizeof size);
  answered_ = true;
  return receive(std::min(size, kLargestAnswer), begin);
}

Result<std::string> GuardedProbe::ask(const std::string& question) {
  const auto begin = Clock::now();
  auto answered = ask_once(question, begin);
  if (!answered && std::exchange(left_, false)) return ask_once(question, begin);
  return answered;
}

Result<std::string> GuardedProbe::ask_once(const std::string& question, Clock::time_point begin) {
  if (auto started = start(); !started) return tl::make_unexpected(started.error());
  if (const auto asked = std::exchange(prepared_, std::nullopt)) {
    const bool fresh = Clock::now() - *asked < kFresh;
    auto prepared = answer(begin);
    if ((question.front() == kSnapshot && fresh) || !prepared) return prepared;
  }
  if (!send_all(socket_.get(), question, begin + settings_.limit)) {
    return tl::make_unexpected(connection_lost(begin));
  }
  return answer(begin);
}

void GuardedProbe::prepare() {
  if (prepared_ || !start()) return;  // snapshot() will report the problem
  const auto now = Clock::now();
  if (send_all(socket_.get(), {&kSnapshot, 1}, now)) prepared_ = now;
}

template <class T>
Result<T> GuardedProbe::ask_for(const std::string& question) {
  auto bytes = ask(question);
  if (!bytes) return tl::make_unexpected(bytes.error());
  auto answer = wire::unpack<T>(*bytes);
  if (answer) return std::move(*answer);
  stop();
  return fail(ErrorKind::no_driver,
              "the NVIDIA driver's library damaged the process that asks it; reinstall the driver");
}

Result<Snapshot> GuardedProbe::snapshot() {
  return ask_for<Snapshot>({kSnapshot});
}

Result<Topology> GuardedProbe::topology() {
  return ask_for<Topology>({kTopology});
}

Result<std::vector<GpuUse>> GuardedProbe::use(const std::vector<std::string>& uuids) {
  wire::Writer writer;
  writer(uuids);
  return ask_for<std::vector<GpuUse>>(fmt::format("{}{}", kUse, sized(writer.take())));
}

}  // namespace berth
