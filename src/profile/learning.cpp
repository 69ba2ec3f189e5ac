// Applies and records profiles, and wakes tickets that wait for one; see learning.h.
#include "profile/learning.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "harbour/bell.h"
#include "profile/needs_estimate.h"
#include "schedule/plan.h"
#include "status/host_view.h"

namespace berth {
namespace {

// A job that needs more than this of a card gets it alone.
constexpr double kNearlyWholeGpu = 0.9;
// A card that is fuller than this has no memory left to allocate.
constexpr double kFullGpu = 0.95;

// The samples that a reliable peak needs: on the GPU; or, of a job that was hardly seen on it, in
// total, which takes about ten seconds (see run/sampler.cpp).
constexpr unsigned kMinSamplesOnGpu = 3;
constexpr unsigned kMinSamples = 50;

Bytes scale(Bytes size, double factor) {
  return Bytes{static_cast<std::uint64_t>(static_cast<double>(size.count) * factor)};
}

// The memory of the largest GPU that matches the request.
std::optional<Bytes> largest_gpu_memory(const Request& request, const std::vector<Gpu>& gpus) {
  std::optional<Bytes> max_memory;
  for (const Gpu& gpu : gpus) {
    if (!gpu.memory_total || !matches(gpu, request)) continue;
    max_memory = std::max(max_memory.value_or(Bytes{}), *gpu.memory_total);
  }
  return max_memory;
}

// Rings a ticket's client if it waits for this profile. Returns whether the client reacts to rings.
bool ring_if_waiting(Transaction& transaction, const TicketName& name, uid_t uid,
                     const std::string& type) {
  const auto client = transaction.read_ticket(name);
  if (!client || !*client) return false;
  const Record& record = (*client)->record;
  if (!record.is_profiling_run || record.uid != uid || record.job != type) return false;
  transaction.ring(**client);
  return !is_unresponsive(**client);
}

// The peak, if it is reliable. The samples of a short job may be from before it allocated its
// memory. A job that was sampled for long, and hardly seen on a GPU, needs little.
std::optional<Bytes> reliable_peak(const Usage& usage) {
  if (usage.samples_on_gpu >= kMinSamplesOnGpu) return usage.peak();
  if (usage.samples < kMinSamples || usage.has_unattributed) return std::nullopt;
  return usage.peak().value_or(Bytes{});
}

}  // namespace

bool apply_profile(Record& record, const ProfileOptions& options, const std::vector<Gpu>& gpus,
                   const HarbourLocation& harbour) {
  // Never use another user's profile: it may say less than the job needs, and then another job on
  // the same GPU would run out of memory.
  const auto profile = read_profile(harbour, options.type);
  const NeedsEstimate estimate = profile ? estimate_needs(*profile) : NeedsEstimate{};
  const auto before =
      std::tuple(record.request.memory, record.request.time, record.is_profiling_run);
  if (options.use_time && estimate.time) {
    record.request.time = *estimate.time;
    record.time_is_estimated = true;
  }
  if (options.use_memory) record.request.memory = estimate.memory;
  if (options.min_memory) {
    record.request.memory = std::max(record.request.memory.value_or(Bytes{}), *options.min_memory);
  }
  const auto gpu_memory = largest_gpu_memory(record.request, gpus);
  const bool needs_nearly_whole_gpu = record.request.memory && gpu_memory &&
                                      *record.request.memory > scale(*gpu_memory, kNearlyWholeGpu);
  const bool can_change_memory = options.use_memory || options.min_memory;
  if (options.exclusive || (can_change_memory && needs_nearly_whole_gpu))
    record.request.memory.reset();
  if (options.use_memory) {
    // A shell can run anything under its lease, so it is never a profiling run. Runs of a type that
    // keeps failing, or is too short to measure, must not wait for each other forever.
    const bool has_run = profile && (profile->failures > 0 || !profile->runs.empty());
    record.is_profiling_run = record.holder == HolderKind::job && !has_run && !estimate.memory;
  }
  return before != std::tuple(record.request.memory, record.request.time, record.is_profiling_run);
}

Bytes memory_after_oom(Bytes previous) {
  constexpr double kGrowth = 1.5;
  return scale(previous, kGrowth);
}

Result<void> record_run(const HarbourLocation& harbour, const Record& lease, const Usage& usage,
                        const RunOutcome& outcome) {
  return change_profile(harbour, lease.job, [&](Profile& profile) {
    profile.command = lease.command;
    if (!usage.framework.empty()) profile.framework = usage.framework;
    const Bytes previous =
        std::max(usage.peak().value_or(Bytes{}), lease.request.memory.value_or(Bytes{}));
    const bool oom = outcome.exit_class == ExitClass::out_of_memory;
    if (outcome.exit_class == ExitClass::failure || (oom && previous == Bytes{})) {
      ++profile.failures;
      return;
    }
    ProfileRun run{std::chrono::system_clock::now(), reliable_peak(usage), outcome.lasted, oom,
                   usage.memory_is_inferred || usage.has_unattributed ||
                       usage.samples_on_gpu < kMinSamplesOnGpu};
    if (oom) run.peak = memory_after_oom(previous);
    add_run(profile, run);
  });
}

void wake_profile_waiters(Harbour& harbour, uid_t uid, const std::string& type) {
  auto transaction = harbour.begin(LockMode::shared, {});
  if (!transaction) return;
  for (const TicketName& name : (*transaction)->queue()) {
    (void)ring_if_waiting(**transaction, name, uid, type);
  }
  (void)(*transaction)->commit();
}

void wake_next_profile_waiter(Harbour& harbour, const Record& ticket, const TicketName& name) {
  auto transaction = harbour.begin(LockMode::shared, {});
  if (!transaction) return;
  const auto& tickets = (*transaction)->queue();
  auto next = std::upper_bound(tickets.begin(), tickets.end(), name);
  while (next != tickets.end() && !ring_if_waiting(**transaction, *next, ticket.uid, ticket.job)) {
    ++next;
  }
  (void)(*transaction)->commit();
}

bool mentions_out_of_memory(std::string_view output) {
  // Messages of PyTorch, CUDA, JAX, TensorFlow, CuPy and the simulated job.
  constexpr std::array<std::string_view, 7> kPatterns{"out of memory",
                                                      "outofmemoryerror",
                                                      "cuda_error_out_of_memory",
                                                      "resource_exhausted",
                                                      "resourceexhaustederror",
                                                      "cublas_status_alloc_failed",
                                                      "cudnn_status_alloc_failed"};
  const std::string lower = lower_case(output);
  return std::any_of(kPatterns.begin(), kPatterns.end(), [&](std::string_view pattern) {
    return lower.find(pattern) != std::string::npos;
  });
}

ExitClass classify_exit(bool succeeded, const Record& lease, const Usage& usage,
                        const std::string& output_tail) {
  if (succeeded) return ExitClass::success;
  if (mentions_out_of_memory(output_tail)) return ExitClass::out_of_memory;
  // Other jobs may have filled a shared card, so the job must have used more than it reserved.
  const auto peak = usage.peak();
  const bool exceeds_reservation = peak && (!lease.request.memory || *peak > *lease.request.memory);
  return exceeds_reservation && usage.max_memory_fraction >= kFullGpu ? ExitClass::out_of_memory
                                                                      : ExitClass::failure;
}

std::string preallocation_hint(const std::string& framework) {
  if (framework == "JAX") {
    return "JAX allocates three quarters of a GPU at its start; set "
           "XLA_PYTHON_CLIENT_PREALLOCATE=false so that berth learns what the job needs";
  }
  if (framework == "TensorFlow") {
    return "TensorFlow allocates nearly all of a GPU at its start; set "
           "TF_FORCE_GPU_ALLOW_GROWTH=true so that berth learns what the job needs";
  }
  return "";
}

}  // namespace berth
