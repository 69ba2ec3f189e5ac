// berth log [--since WHEN] [--user NAME] [--gpu GPU,…] [--follow] [--json]
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <poll.h>
#include <pwd.h>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

#include "archive/follow.h"
#include "base/text.h"
#include "broker/archiving.h"
#include "cli/command.h"
#include "cli/gpu_arguments.h"
#include "cli/output/log_json.h"
#include "cli/output/log_text.h"

namespace berth {
namespace {

constexpr std::chrono::hours kDefaultSince(24 * 7);

struct Options {
  TimePoint since = std::chrono::system_clock::now() - kDefaultSince;
  std::optional<uid_t> user;
  std::string gpus;
  bool follow = false;
  bool json = false;
};

// "2h" before now, or a date, with or without the time of day.
Result<TimePoint> parse_when(std::string_view text) {
  const std::string word(text);
  for (const char* form :
       {"%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"}) {
    std::tm time{};
    time.tm_isdst = -1;
    const char* const end = ::strptime(word.c_str(), form, &time);
    if (end == nullptr || *end != '\0') continue;
    const std::time_t seconds = std::mktime(&time);
    if (seconds >= 0) return TimePoint(std::chrono::seconds(seconds));
  }
  const auto ago = parse_duration(text);
  if (!ago) {
    return fail(ErrorKind::usage,
                fmt::format("{} is neither a time such as 2h or 7d nor a date such as 2026-11-16",
                            in_quotes(text)));
  }
  const TimePoint now = std::chrono::system_clock::now();
  return *ago < now.time_since_epoch() ? now - *ago : TimePoint{};
}

Result<uid_t> parse_user(std::string_view text) {
  const std::string name(text);
  if (const passwd* user = ::getpwnam(name.c_str())) return user->pw_uid;
  uid_t uid = 0;
  const char* const end = text.data() + text.size();
  if (std::from_chars(text.data(), end, uid).ptr == end && !text.empty()) return uid;
  return fail(ErrorKind::usage, fmt::format("there is no user {}", in_quotes(text)));
}

// Indices as they were then: the driver is not asked, and a GPU may be gone.
bool names(const std::string& list, const HistoryGpu& gpu) {
  std::string_view rest = list;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(','));
    if (word == gpu.uuid || word == gpu.index) return true;
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
  }
  return false;
}

bool wanted(const HistoryEntry& entry, const Options& options) {
  if (options.user && entry.uid != *options.user) return false;
  return options.gpus.empty() ||
         std::any_of(entry.gpus.begin(), entry.gpus.end(),
                     [&](const HistoryGpu& gpu) { return names(options.gpus, gpu); });
}

void say_damaged(std::size_t lines, const std::string& archive) {
  if (lines == 0) return;
  say(fmt::format("{} {} of the history in {} could not be read, and {} left out", lines,
                  lines == 1 ? "line" : "lines", archive, lines == 1 ? "was" : "were"));
}

// Until it is interrupted, or nobody reads it any more.
void follow(HistoryFollower& follower, std::set<std::string> shown, const Options& options,
            const std::function<std::string(const HistoryEntry&)>& render) {
  constexpr int kAuditMs = 5'000;  // where the kernel has no watch left
  while (std::fflush(stdout) == 0) {
    std::array<pollfd, 2> watched{{{follower.news(), POLLIN, 0}, {STDOUT_FILENO, 0, 0}}};
    ::poll(watched.data(), watched.size(), kAuditMs);
    if ((watched[1].revents & POLLERR) != 0) return;  // the reader is gone
    for (const HistoryEntry& entry : follower.next()) {
      const bool ended = entry.ending != Ending::running;
      if (ended && wanted(entry, options) && shown.insert(entry.id).second) print(render(entry));
    }
  }
}

Result<int> show_log(const Options& options) {
  const HarbourLocation where = harbour_location();
  const std::string archive = archive_path(where);
  std::optional<HistoryFollower> follower;
  if (options.follow) follower.emplace(archive);  // first, so that nothing is missed
  const auto want = [&](const HistoryEntry& entry) { return wanted(entry, options); };
  auto history = recall(where, options.since, want);
  if (!history) return tl::make_unexpected(history.error());
  say_damaged(history->damaged, archive);
  const auto& entries = history->entries;
  const Terminal terminal = terminal_at(STDOUT_FILENO);
  const LogTable table(terminal, entries);
  const auto render = [&](const HistoryEntry& entry) {
    return options.json ? log_json(entry) : table.line(entry);
  };
  if (!options.json && entries.empty() && !options.follow) {
    say("nothing is written for that; each lease is, when it ends: berth run -- python train.py");
    return 0;
  }
  if (!options.json) print(table.heading());
  std::set<std::string> shown;
  for (const HistoryEntry& entry : entries) {
    print(render(entry));
    if (entry.ending != Ending::running) shown.insert(entry.id);
  }
  if (follower) follow(*follower, std::move(shown), options, render);
  return 0;
}

}  // namespace

Action define_log(Flags& command, CLI::App& /*program*/) {
  auto options = std::make_shared<Options>();
  command.value("--since", "WHEN", "Only what ended since then: 2h, 7d (default), 2026-11-16",
                [options](std::string_view text) -> Result<void> {
                  auto when = parse_when(text);
                  if (!when) return tl::make_unexpected(when.error());
                  options->since = *when;
                  return {};
                });
  command.value("--user", "NAME", "Only this user's leases",
                [options](std::string_view text) -> Result<void> {
                  auto user = parse_user(text);
                  if (!user) return tl::make_unexpected(user.error());
                  options->user = *user;
                  return {};
                });
  command.value("--gpu", "GPU,...", "Only leases of these GPUs, by index or UUID",
                [options](std::string_view text) -> Result<void> {
                  auto list = gpu_list({std::string(text)});
                  if (!list) return tl::make_unexpected(list.error());
                  options->gpus = std::move(*list);
                  return {};
                });
  command.flag("--follow", options->follow, "Stay, and show each lease that ends");
  command.flag("--json", options->json, "Print a line of JSON for each, as docs/json.md has it");
  command.footer(
      "Each lease of the last 7 days, in the order in which they were granted: when, for how "
      "long,\n"
      "how long it had waited, whose, on which GPUs, and how it ended. \"lost\": its holder was\n"
      "found dead (kill -9, a crash of the host), and it ended some time before. Everybody can\n"
      "read it; docs/history.md says where it is kept.\n"
      "\nExamples:\n"
      "  berth log --since 2h\n"
      "  berth log --user $USER --json | jq -r 'select(.exit_code != 0) | .command'\n"
      "  berth log --follow --gpu 0,1");
  return [options]() { return show_log(*options); };
}

}  // namespace berth
