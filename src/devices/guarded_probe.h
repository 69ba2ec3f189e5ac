// A probe that survives a hanging or crashing driver: a child process holds the session.
//
// A driver can hang in an uninterruptible wait that even kill -9 does not end, and a process with
// such a thread cannot exit. So the parent never calls the driver: it sends a query to the child,
// waits a limited time, and then abandons the child. The limit holds whatever the child does: even
// if it closes its socket and keeps running, reads nothing, or sends single bytes. A crash of the
// driver ends only the child. The child holds no descriptor of the parent (no bell, no lock, no
// pipe with a reader), and the kernel kills it when the thread that started it ends.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>

#include "base/unique_fd.h"
#include "devices/helper_process.h"
#include "devices/probe.h"

namespace berth {

struct GuardedProbeSettings {
  std::string library;                          // see NvmlSession
  std::string program;                          // see start_helper()
  std::chrono::milliseconds timeout{20'000};    // some servers take 15 s to start NVML
  std::chrono::milliseconds slow_after{2'000};  // when to call on_slow
  std::function<void()> on_slow;                // called once for each query that takes that long
};

// The work of the helper process. Its arguments are the library and the exit mode.
void serve_probe(int socket, const HelperArguments& arguments);
inline constexpr Helper kProbeHelper{"berth-probe", serve_probe};

// The first query starts the child, which then answers the later ones. A child that is a program of
// its own (GuardedProbeSettings::program) exits after some time without queries; the next query
// starts another. A forked child of this process does not use the child, and starts its own.
class GuardedProbe final : public Probe {
 public:
  explicit GuardedProbe(GuardedProbeSettings settings) : settings_(std::move(settings)) {}
  GuardedProbe(const GuardedProbe&) = delete;
  GuardedProbe& operator=(const GuardedProbe&) = delete;
  ~GuardedProbe() override;

  Result<Snapshot> snapshot() override;
  Result<Topology> topology() override;
  Result<std::vector<GpuSample>> sample(const std::vector<std::string>& uuids) override;
  void prefetch_snapshot() override;
  void set_interrupt(int fd, const std::function<bool()>& confirm_interrupt) override {
    interrupt_fd_ = fd;
    confirm_interrupt_ = confirm_interrupt;
  }
  void close_session() override { stop(); }
  void abandon_query() override;
  void set_on_slow(std::function<void()> callback) { settings_.on_slow = std::move(callback); }

 private:
  using Clock = std::chrono::steady_clock;

  Result<void> start();
  void stop();
  void drop_child_if_forked();
  Result<std::string> query(const std::string& message);
  Result<std::string> query_once(const std::string& message, Clock::time_point begin);
  Result<std::string> receive_reply(Clock::time_point begin);
  bool wait_for_reply(Clock::time_point deadline);
  Result<std::string> receive_bytes(std::size_t size, Clock::time_point begin);
  template <class T>
  Result<T> query_as(const std::string& message);
  Error handle_lost_connection(Clock::time_point begin);
  Error handle_timeout();

  GuardedProbeSettings settings_;
  UniqueFd socket_;
  UniqueFd handle_;         // the child's pidfd, valid even if the host program has reaped it
  pid_t owner_pid_ = -1;    // the process that started the child
  UniqueFd exiting_child_;  // the last child that was killed and is not reaped yet
  int interrupt_fd_ = -1;
  std::function<bool()> confirm_interrupt_;
  bool exited_when_idle_ = false;  // the last child replied at least once, and then exited normally
  bool has_replied_ = false;       // the child has replied, so it has closed inherited descriptors
  bool slow_reported_ = false;     // on_slow was called for the current query
  // When a snapshot query was sent whose reply is not read yet.
  std::optional<Clock::time_point> prefetched_at_;
};

}  // namespace berth
