// Profiles for people; see profile_text.h.
#include "cli/output/profile_text.h"

#include <algorithm>
#include <cstring>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <string_view>

#include "base/users.h"
#include "profile/learning.h"

namespace berth {
namespace {

constexpr std::size_t kSize = 9;
constexpr std::size_t kTime = 8;
constexpr std::size_t kRuns = 4;

std::string size_or(const std::optional<Bytes>& size, std::string_view otherwise) {
  return size ? format_size(*size) : std::string(otherwise);
}

std::string time_or(const std::optional<std::chrono::milliseconds>& time,
                    std::string_view otherwise) {
  return time ? format_duration(*time) : std::string(otherwise);
}

std::string local_time(TimePoint time) {
  const auto seconds = std::chrono::system_clock::to_time_t(
      std::chrono::time_point_cast<std::chrono::system_clock::duration>(time));
  return fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(seconds));
}

// What makes one wonder about a run.
std::string remark(const ProfileRun& run) {
  if (run.out_of_memory) return "ran out of memory; counts as if it had needed this";
  if (!run.peak) return "too short to be seen on a GPU";
  return run.doubtful ? "not certain: hardly seen, or the driver did not say whose memory it is"
                      : "";
}

std::string why(const Profile& profile, const Estimate& expected) {
  if (profile.set_memory) return "as it was set";
  if (!expected.memory) {
    return profile.runs.empty() && profile.failures == 0
               ? "unknown: the next run is measured, on GPUs of its own"
               : "unknown so far: each run has GPUs of its own";
  }
  const auto measured = std::count_if(profile.runs.begin(), profile.runs.end(),
                                      [](const ProfileRun& run) { return run.peak.has_value(); });
  return fmt::format("{} and {:.0f} % more; {}", format_size(*expected.quantile),
                     expected.margin * 100,
                     measured == 1 ? "the only run so far"
                                   : fmt::format("the 98th percentile of {} runs", measured));
}

}  // namespace

std::string reserve_text(const Estimate& expected) {
  return size_or(expected.memory, "unknown");
}

std::string profiles_table(const std::vector<Profile>& profiles, const Terminal& terminal) {
  std::size_t user = std::strlen("USER");
  for (const Profile& profile : profiles) {
    user = std::max(user, display_width(terminal.show(user_name(profile.uid, profile.user))));
  }
  std::string text =
      terminal.paint(Style::bold, fmt::format("{}  {}  {}  {}  {}  TYPE", left("USER", user),
                                              right("RUNS", kRuns), right("PEAK", kSize),
                                              right("RESERVES", kSize), right("TIME", kTime)));
  text += '\n';
  for (const Profile& profile : profiles) {
    const Estimate expected = estimate(profile);
    const std::string before = fmt::format(
        "{}  {}  {}  {}  {}  ", left(terminal.show(user_name(profile.uid, profile.user)), user),
        right(std::to_string(profile.runs.size()), kRuns),
        right(size_or(expected.quantile, "-"), kSize), right(reserve_text(expected), kSize),
        right(time_or(expected.time, "-"), kTime));
    std::string type = terminal.show(profile.type);
    if (terminal.width) {
      const std::size_t used = display_width(before);
      type = fitted(type, *terminal.width > used ? *terminal.width - used : 0, terminal.charset);
    }
    text += fmt::format("{}{}\n", before, type);
  }
  return text;
}

std::string profile_page(const Profile& profile, const Terminal& terminal) {
  const Estimate expected = estimate(profile);
  std::string text = terminal.paint(Style::bold, terminal.show(profile.type));
  text += fmt::format("\n  of {}; last run as: {}\n",
                      terminal.show(user_name(profile.uid, profile.user)),
                      terminal.show(profile.command));
  text += fmt::format("  reserves {} on each GPU: {}\n", reserve_text(expected),
                      why(profile, expected));
  text += fmt::format("  runs {}\n",
                      expected.time ? fmt::format("up to {}{}", format_duration(*expected.time),
                                                  profile.set_time ? ", as it was set" : "")
                                    : "for a time that is not known yet (3 runs alike tell)");
  if (profile.failures > 0) {
    text += fmt::format("  failed {} {} since it last succeeded; failures teach nothing\n",
                        profile.failures, profile.failures == 1 ? "time" : "times");
  }
  if (const std::string hint = hint_for(profile.framework); !hint.empty()) {
    text += fmt::format("  {}\n", hint);
  }
  if (profile.runs.empty()) return text;
  text +=
      fmt::format("\n  {}  {}  {}\n", left("ENDED", 16), right("PEAK", kSize), right("RAN", kTime));
  for (auto run = profile.runs.rbegin(); run != profile.runs.rend(); ++run) {
    const std::string line = fmt::format("  {}  {}  {}  {}", local_time(run->ended),
                                         right(size_or(run->peak, "-"), kSize),
                                         right(format_duration(run->lasted), kTime), remark(*run));
    text += fmt::format("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
  }
  return text;
}

}  // namespace berth
