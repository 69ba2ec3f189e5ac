// The helper processes that hold placeholders, and their parent's side; see placeholder.h.
#include "devices/placeholder.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/process.h"
#include "base/text.h"
#include "devices/cuda_memory.h"
#include "devices/driver.h"
#include "devices/helper_process.h"
#include "devices/nvml_session.h"
#include "devices/wire.h"

namespace berth {
namespace {

// In addition to the CUDA context, which is several times as large.
constexpr Bytes kPlaceholderMemory = mib(16);

using Pids = std::vector<std::int64_t>;

Result<Gpu> find_gpu(NvmlSession& session, const std::string& uuid) {
  Snapshot snapshot = TRY(session.snapshot());
  for (Gpu& gpu : snapshot.gpus) {
    if (gpu.uuid == uuid) return Result<Gpu>(std::move(gpu));
  }
  return fail(ErrorKind::no_driver, "the driver does not list this GPU; see 'berth status'");
}

// Allocates the memory. Returns the processes that are on the GPU afterwards, including this one.
Result<Pids> allocate_placeholder(NvmlSession& session, const std::string& uuid,
                                  const std::string& cuda) {
  if (TRY(find_gpu(session, uuid)).compute_mode == ComputeMode::exclusive_process) {
    return fail(ErrorKind::impossible,
                "the GPU is in exclusive-process mode, so a placeholder would keep the job from "
                "using it; omit --placeholder (this mode makes it unnecessary)");
  }
  TRY(allocate_gpu_memory(cuda, uuid, kPlaceholderMemory));
  const Gpu gpu = TRY(find_gpu(session, uuid));
  Pids pids;
  for (const GpuProcess& process : gpu.processes) pids.push_back(process.pid);
  return pids;
}

bool descends_from(const GpuProcess& process, pid_t ancestor) {
  return std::any_of(process.lineage.begin(), process.lineage.end(),
                     [&](const Ancestor& one) { return one.pid == ancestor; });
}

// Whether a process of the job is on the GPU. In a container the driver's PIDs are the host's,
// which the container's /proc does not have: there, every process that was not on the GPU before
// counts as the job. `parent` is a PID of this process's namespace, and is used only outside of
// containers.
bool is_job_on_gpu(const Gpu& gpu, const Pids& before, pid_t parent) {
  const bool host_pids = is_in_host_pid_namespace();
  return std::any_of(gpu.processes.begin(), gpu.processes.end(), [&](const GpuProcess& process) {
    if (!host_pids) return std::find(before.begin(), before.end(), process.pid) == before.end();
    // Placeholders do not count: this one, and those of a berth that the job itself runs.
    return process.name != kPlaceholderHelper.name && descends_from(process, parent);
  });
}

}  // namespace

// The exit of the process releases the memory.
void run_placeholder(int socket, const HelperArguments& arguments) {
  const std::string& uuid = arguments.at(0);
  const pid_t parent = ::getppid();
  const std::chrono::milliseconds poll_interval(std::stol(arguments.at(3)));
  NvmlSession session(arguments.at(1));
  const auto before = allocate_placeholder(session, uuid, arguments.at(2));
  if (!send_all(socket, wire::pack(before)) || !before) return;
  // Marks the end of the report. The other direction stays open: the parent closes it to end this.
  ::shutdown(socket, SHUT_WR);
  while (!wait_readable(socket, std::chrono::steady_clock::now() + poll_interval)) {
    const auto gpu = find_gpu(session, uuid);
    if (gpu && is_job_on_gpu(*gpu, *before, parent)) return;
  }
}

Result<Placeholders> Placeholders::start(const std::vector<std::string>& uuids) {
  PlaceholderSettings settings;
  settings.timeout = TRY(read_driver_timeout());
  settings.nvml = TRY(find_driver_library("libnvidia-ml.so.1"));
  settings.cuda = TRY(find_driver_library("libcuda.so.1"));
  settings.program = helper_program();
  return start(uuids, settings);
}

Result<Placeholders> Placeholders::start(const std::vector<std::string>& uuids,
                                         const PlaceholderSettings& settings) {
  const auto deadline = Clock::now() + settings.timeout;
  Placeholders placeholders;  // on an early return, its destructor stops the helpers
  placeholders.owner_pid_ = ::getpid();
  const auto placeholder_error = [](const std::string& uuid, const Error& error) {
    return fail(error.kind,
                fmt::format("no placeholder on {}: {}", printable(uuid), error.message));
  };
  for (const std::string& uuid : uuids) {
    auto started = start_helper(
        kPlaceholderHelper,
        {uuid, settings.nvml, settings.cuda, std::to_string(settings.poll_interval.count())},
        settings.program);
    if (!started) return placeholder_error(uuid, started.error());
    placeholders.helpers_.push_back(
        {uuid, started->pid, std::move(started->handle), std::move(started->socket)});
  }
  for (const PlaceholderHelper& helper : placeholders.helpers_) {
    const auto ready = wait_until_ready(helper, deadline);
    if (!ready) return placeholder_error(helper.uuid, ready.error());
  }
  return placeholders;
}

// Reads the helper's report, which may arrive in pieces.
Result<void> Placeholders::wait_until_ready(const PlaceholderHelper& helper,
                                            Clock::time_point deadline) {
  constexpr std::size_t kMaxReportSize = 1 << 20;
  std::string report;
  std::array<char, 1024> buffer{};
  std::optional<Clock::time_point> read_deadline;
  for (;;) {
    const auto now = Clock::now();
    if (now >= deadline && !read_deadline) read_deadline = now + kLateReadTimeout;
    if ((read_deadline && now > *read_deadline) || !wait_readable(helper.socket.get(), deadline)) {
      return fail(
          ErrorKind::no_driver,
          "the NVIDIA driver did not answer in time; it may hang (see dmesg | grep NVRM) or "
          "start slowly (to wait longer, set BERTH_DRIVER_TIMEOUT=60s)");
    }
    const auto got = receive_some(helper.socket.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EAGAIN) continue;
    if (got <= 0 || report.size() > kMaxReportSize) break;
    report.append(buffer.data(), static_cast<std::size_t>(got));
  }
  const auto result = wire::unpack<Pids>(report);
  if (!result) {
    return fail(
        ErrorKind::no_driver,
        "its process ended unexpectedly, perhaps by a crash of the CUDA library (see dmesg); "
        "try again, or omit --placeholder");
  }
  if (!*result) return tl::make_unexpected(result->error());
  return {};
}

std::vector<pid_t> Placeholders::pids() {
  std::vector<pid_t> pids;
  std::erase_if(helpers_, [&](const PlaceholderHelper& helper) {
    if (has_ended(helper.handle)) {
      kill_helper(helper.handle);
      return true;
    }
    pids.push_back(helper.pid);
    return false;
  });
  return pids;
}

void Placeholders::stop() {
  if (owner_pid_ != ::getpid()) helpers_.clear();
  // Kill all before waiting for any: a process with a CUDA context exits slowly.
  for (PlaceholderHelper& helper : helpers_) {
    helper.socket.reset();
    send_signal(helper.handle, SIGKILL);
  }
  for (const PlaceholderHelper& helper : helpers_) kill_helper(helper.handle);
  helpers_.clear();
}

}  // namespace berth
