// Learning; see learning.h.
#include "profile/learning.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "harbour/bell.h"
#include "status/host_view.h"

namespace berth {
namespace {

// A job that takes up most of a card may as well have it alone.
constexpr double kNearlyAll = 0.9;
// How full a card is when there is no more to be had.
constexpr double kFull = 0.95;

// Samples after which one knows. The latter are some ten seconds' (see sampler.cpp).
constexpr unsigned kSeenEnough = 3;
constexpr unsigned kLookedEnough = 50;

Bytes times(Bytes size, double factor) {
  return Bytes{static_cast<std::uint64_t>(static_cast<double>(size.count) * factor)};
}

// The memory of the largest GPU that will do.
std::optional<Bytes> largest(const Request& request, const std::vector<Gpu>& gpus) {
  std::optional<Bytes> most;
  for (const Gpu& gpu : gpus) {
    if (!gpu.memory_total || !matches(gpu, request)) continue;
    most = std::max(most.value_or(Bytes{}), *gpu.memory_total);
  }
  return most;
}

// Rings the client of a ticket if it waits for this profile, and can hear it.
bool ring_if_waits(Transaction& transaction, const TicketName& name, uid_t uid,
                   const std::string& type) {
  const auto client = transaction.ticket(name);
  if (!client || !*client) return false;
  const Record& record = (*client)->record;
  if (!record.profiles || record.uid != uid || record.job != type) return false;
  transaction.ring(**client);
  return !is_unresponsive(**client);
}

// What is short may have been seen before it had its memory: that tells nothing. Who was looked at
// for long, and hardly seen, needs little.
std::optional<Bytes> believable_peak(const Usage& usage) {
  if (usage.seen >= kSeenEnough) return usage.peak();
  if (usage.samples < kLookedEnough || usage.unclear) return std::nullopt;
  return usage.peak().value_or(Bytes{});
}

}  // namespace

bool fit(Record& record, const Learning& learning, const std::vector<Gpu>& gpus,
         const HarbourLocation& harbour) {
  // Not another user's profile: it may say less than the job needs, and then a neighbour on the
  // same GPU would run out of memory.
  const auto profile = read_profile(harbour, learning.type);
  const Estimate expected = profile ? estimate(*profile) : Estimate{};
  const auto before = std::tuple(record.request.memory, record.request.time, record.profiles);
  if (learning.time && expected.time) record.request.time = *expected.time;
  if (learning.memory) record.request.memory = expected.memory;
  if (learning.at_least) {
    record.request.memory = std::max(record.request.memory.value_or(Bytes{}), *learning.at_least);
  }
  const auto card = largest(record.request, gpus);
  const bool nearly_all =
      record.request.memory && card && *record.request.memory > times(*card, kNearlyAll);
  const bool ours_to_say = learning.memory || learning.at_least;
  if (learning.alone || (ours_to_say && nearly_all)) record.request.memory.reset();
  if (learning.memory) {
    // A shell may do anything under its lease, so it teaches nothing. A type that keeps failing, or
    // is too short to be seen, must not run one at a time for ever.
    const bool tried = profile && (profile->failures > 0 || !profile->runs.empty());
    record.profiles = record.holder == HolderKind::job && !tried && !expected.memory;
  }
  return before != std::tuple(record.request.memory, record.request.time, record.profiles);
}

Bytes more_than(Bytes had) {
  constexpr double kMore = 1.5;
  return times(had, kMore);
}

Result<void> record_run(const HarbourLocation& harbour, const Record& lease, const Usage& usage,
                   const RunOutcome& lesson) {
  return change_profile(harbour, lease.job, [&](Profile& profile) {
    profile.command = lease.command;
    if (!usage.framework.empty()) profile.framework = usage.framework;
    const Bytes had =
        std::max(usage.peak().value_or(Bytes{}), lease.request.memory.value_or(Bytes{}));
    const bool oom = lesson.verdict == ExitClass::out_of_memory;
    if (lesson.verdict == ExitClass::failure || (oom && had == Bytes{})) {
      ++profile.failures;
      return;
    }
    ProfileRun run{std::chrono::system_clock::now(), believable_peak(usage), lesson.lasted, oom,
                   usage.from_card || usage.unclear || usage.seen < kSeenEnough};
    if (oom) run.peak = more_than(had);
    learn(profile, run);
  });
}

void wake_waiters(Harbour& harbour, uid_t uid, const std::string& type) {
  auto transaction = harbour.begin(LockMode::shared, {});
  if (!transaction) return;
  for (const TicketName& name : (*transaction)->queue()) {
    (void)ring_if_waits(**transaction, name, uid, type);
  }
  (void)(*transaction)->commit();
}

void wake_next_waiter(Harbour& harbour, const Record& ticket, const TicketName& name) {
  auto transaction = harbour.begin(LockMode::shared, {});
  if (!transaction) return;
  const auto& tickets = (*transaction)->queue();
  auto next = std::upper_bound(tickets.begin(), tickets.end(), name);
  while (next != tickets.end() && !ring_if_waits(**transaction, *next, ticket.uid, ticket.job)) {
    ++next;
  }
  (void)(*transaction)->commit();
}

bool tells_of_memory(std::string_view words) {
  // PyTorch, CUDA, JAX, TensorFlow, CuPy, and the simulated job.
  constexpr std::array<std::string_view, 7> kWords{"out of memory",
                                                   "outofmemoryerror",
                                                   "cuda_error_out_of_memory",
                                                   "resource_exhausted",
                                                   "resourceexhaustederror",
                                                   "cublas_status_alloc_failed",
                                                   "cudnn_status_alloc_failed"};
  const std::string said = lower_case(words);
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](std::string_view one) { return said.find(one) != std::string::npos; });
}

ExitClass classify_exit(bool succeeded, const Record& lease, const Usage& usage,
                  const std::string& last_words) {
  if (succeeded) return ExitClass::success;
  if (tells_of_memory(last_words)) return ExitClass::out_of_memory;
  // Beside others the card may be full by right: then it must have taken more than it had reserved.
  const auto peak = usage.peak();
  const bool beyond = peak && (!lease.request.memory || *peak > *lease.request.memory);
  return beyond && usage.fullest >= kFull ? ExitClass::out_of_memory : ExitClass::failure;
}

std::string hint_for(const std::string& framework) {
  if (framework == "JAX") {
    return "JAX takes three quarters of a GPU at its start, whatever it needs; with "
           "XLA_PYTHON_CLIENT_PREALLOCATE=false berth learns what it really uses";
  }
  if (framework == "TensorFlow") {
    return "TensorFlow takes nearly all of a GPU at its start, whatever it needs; with "
           "TF_FORCE_GPU_ALLOW_GROWTH=true berth learns what it really uses";
  }
  return "";
}

}  // namespace berth
