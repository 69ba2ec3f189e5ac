// A probe that a bad driver cannot take down: the session lives in a child process.
//
// A driver can hang in an uninterruptible wait, where not even kill -9 ends it, and a process with
// such a thread cannot exit either. So the parent never calls the driver: it asks the child, waits
// a limited time, and otherwise leaves the child behind. The limit holds whatever the child does:
// also if it closes its socket and goes on, reads nothing, or sends byte after byte. A driver that
// crashes ends only the child. The child holds no descriptor of the parent's (no bell, no lock, no
// pipe with a reader), and ends with the thread that started it.
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
  std::chrono::milliseconds slow_after{2'000};  // when a person starts to wonder
  std::function<void()> on_slow;                // called once per question that takes that long
};

// The helper that answers.
void serve_probe(int socket, const HelperArguments& arguments);
inline constexpr Helper kProbeHelper{"berth-probe", serve_probe};

// The child is started by the first question, and stays for the next ones; in a program of its own
// (GuardedProbeSettings::program), until no question has come for a while. A fork of this process
// does not use it, and starts its own.
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
  UniqueFd handle_;         // the child, also when the host program has collected it
  pid_t owner_pid_ = -1;    // the process that has started the child
  UniqueFd exiting_child_;  // the last child that was told to end, and is yet to be collected
  int interrupt_fd_ = -1;
  std::function<bool()> confirm_interrupt_;
  bool exited_when_idle_ = false;  // the last child had answered before, and then exited by itself
  bool has_replied_ = false;       // the child has, so it has shed what it had of ours
  bool slow_reported_ = false;     // on_slow, of the current question
  std::optional<Clock::time_point>
      prefetched_at_;  // a snapshot was asked for then, its answer not read
};

}  // namespace berth
