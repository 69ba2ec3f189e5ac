// Profiles as a table and as a page of text; see profile_text.h.
#include "cli/output/profile_text.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <string_view>

#include "base/time_text.h"
#include "base/users.h"
#include "profile/learning.h"

namespace berth {
namespace {

constexpr std::size_t kSizeWidth = 9;
constexpr std::size_t kRunTimeWidth = 8;
constexpr std::size_t kRunsWidth = 4;

std::string size_text(const std::optional<Bytes>& size, std::string_view fallback) {
  return size ? format_size(*size) : std::string(fallback);
}

std::string time_text(const std::optional<std::chrono::milliseconds>& time,
                      std::string_view fallback) {
  return time ? format_duration(*time) : std::string(fallback);
}

std::string format_local_minute(TimePoint time) {
  return format_local_time(time, "%Y-%m-%d %H:%M");
}

// A remark on a run whose numbers need an explanation; or empty.
std::string run_remark(const ProfileRun& run) {
  if (run.out_of_memory) return "ran out of memory; counted as if the run had needed this much";
  if (!run.peak) return "too short to be measured";
  return run.doubtful ? "uncertain: few samples, or the driver did not report memory by process"
                      : "";
}

std::string reserve_reason(const Profile& profile, const NeedsEstimate& expected) {
  if (profile.set_memory) return "set with 'berth profile set'";
  if (!expected.memory) {
    return profile.runs.empty() && profile.failures == 0
               ? "the next run with --mem auto gets exclusive GPUs and is measured"
               : "each run with --mem auto gets exclusive GPUs until one is measured";
  }
  const auto measured = std::count_if(profile.runs.begin(), profile.runs.end(),
                                      [](const ProfileRun& run) { return run.peak.has_value(); });
  return fmt::format(
      "{} ({}) plus {:.0f}%", format_size(*expected.quantile),
      measured == 1
          ? "the only run so far"
          : fmt::format("the {} of {} runs",
                        measured < kMinRunsForQuantile ? "largest" : "98th percentile", measured),
      expected.margin * 100);
}

}  // namespace

std::string reserve_text(const NeedsEstimate& expected) {
  return size_text(expected.memory, "unknown");
}

std::string profiles_table(const std::vector<Profile>& profiles, const Terminal& terminal) {
  std::size_t user = std::strlen("USER");
  for (const Profile& profile : profiles) {
    user = std::max(user, display_width(terminal.escape(user_name(profile.uid, profile.user))));
  }
  std::string text = terminal.paint(
      Style::bold,
      fmt::format("{}  {}  {}  {}  {}  TYPE", align_left("USER", user),
                  align_right("RUNS", kRunsWidth), align_right("PEAK", kSizeWidth),
                  align_right("RESERVES", kSizeWidth), align_right("TIME", kRunTimeWidth)));
  text += '\n';
  for (const Profile& profile : profiles) {
    const NeedsEstimate expected = estimate_needs(profile);
    const std::string prefix =
        fmt::format("{}  {}  {}  {}  {}  ",
                    align_left(terminal.escape(user_name(profile.uid, profile.user)), user),
                    align_right(std::to_string(profile.runs.size()), kRunsWidth),
                    align_right(size_text(expected.quantile, "-"), kSizeWidth),
                    align_right(reserve_text(expected), kSizeWidth),
                    align_right(time_text(expected.time, "-"), kRunTimeWidth));
    std::string type = terminal.escape(profile.type);
    if (terminal.width) {
      const std::size_t used = display_width(prefix);
      type = truncate_text(type, *terminal.width > used ? *terminal.width - used : 0,
                           terminal.charset);
    }
    text += fmt::format("{}{}\n", prefix, type);
  }
  return text;
}

std::string profile_page(const Profile& profile, const Terminal& terminal) {
  const NeedsEstimate expected = estimate_needs(profile);
  std::string text = terminal.paint(Style::bold, terminal.escape(profile.type));
  text += fmt::format("\n  user {}; last command: {}\n",
                      terminal.escape(user_name(profile.uid, profile.user)),
                      terminal.escape(profile.command));
  text += fmt::format("  reserves {} on each GPU: {}\n", reserve_text(expected),
                      reserve_reason(profile, expected));
  text += expected.time ? fmt::format("  runs up to {}{}\n", format_duration(*expected.time),
                                      profile.set_time ? ", set with 'berth profile set'" : "")
                        : "  run time not known yet (needs 3 similar runs)\n";
  if (profile.failures > 0) {
    text +=
        fmt::format("  failed {} {} since the last success; berth does not learn from failures\n",
                    profile.failures, profile.failures == 1 ? "time" : "times");
  }
  if (const std::string hint = preallocation_hint(profile.framework); !hint.empty()) {
    text += fmt::format("  {}\n", hint);
  }
  if (profile.runs.empty()) return text;
  text += fmt::format("\n  {}  {}  {}\n", align_left("ENDED", 16), align_right("PEAK", kSizeWidth),
                      align_right("RAN", kRunTimeWidth));
  for (auto run = profile.runs.rbegin(); run != profile.runs.rend(); ++run) {
    const std::string line =
        fmt::format("  {}  {}  {}  {}", format_local_minute(run->ended),
                    align_right(size_text(run->peak, "-"), kSizeWidth),
                    align_right(format_duration(run->lasted), kRunTimeWidth), run_remark(*run));
    text += fmt::format("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
  }
  return text;
}

}  // namespace berth
