// Formats what was granted; see grant_message.h.
#include "run/grant_message.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/text.h"
#include "lease/job_environment.h"
#include "profile/needs_estimate.h"
#include "profile/profile_store.h"
#include "status/status_format.h"

namespace berth {
namespace {

// "up to 5.5 GiB in 12 earlier runs"; empty if no run was measured.
std::string describe_measured_runs(const Profile& profile) {
  Bytes peak;
  std::size_t count = 0;
  for (const ProfileRun& run : profile.runs) {
    if (!run.peak) continue;
    peak = std::max(peak, *run.peak);
    ++count;
  }
  if (count == 0) return "";
  return fmt::format("up to {} in {} earlier {}", format_size(peak), count,
                     count == 1 ? "run" : "runs");
}

}  // namespace

std::string explain_auto_memory(const Record& lease, const std::optional<Profile>& profile,
                                const ProfileOptions& options) {
  const auto& memory = lease.request.memory;
  const std::string reserved =
      memory ? fmt::format("{} reserved", format_size(*memory)) : std::string("exclusive");
  if (lease.is_profiling_run) return reserved + ": the memory of this first run is measured";
  if (options.min_memory) return reserved + ": an earlier attempt ran out of memory";
  const NeedsEstimate needs = profile ? estimate_needs(*profile) : NeedsEstimate{};
  if (!needs.memory) return reserved + ": the memory of no earlier run is known";
  if (profile->set_memory) return reserved + ": set with 'berth profile set'";
  const std::string runs = describe_measured_runs(*profile);
  if (!memory) return fmt::format("{}: {}, nearly a whole GPU", reserved, runs);
  return fmt::format("{}: {}, plus {:.0f}%", reserved, runs, 100 * needs.margin);
}

std::string explain_reservation(Lease& lease, const std::optional<ProfileOptions>& options) {
  if (!options || !options->use_memory) return "";
  const auto profile = read_profile(lease.harbour().location(), options->type);
  return explain_auto_memory(lease.record(), profile, *options);
}

std::string format_grant(Lease& lease, bool waited, const std::optional<ProfileOptions>& options) {
  const Record& record = lease.record();
  std::string text =
      fmt::format("granted {}", gpu_list(format_gpu_indices(lease.host_gpus(), record.uuids)));
  if (waited) {
    text += fmt::format(" after {}",
                        format_rough_duration(std::chrono::system_clock::now() - record.since));
  }
  const std::string reservation = explain_reservation(lease, options);
  return reservation.empty() ? text : fmt::format("{}, {}", text, reservation);
}

}  // namespace berth
