// Parsing of what `berth log` and `berth report` have in common; see history_options.h.
#include "cli/history_options.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <fmt/format.h>
#include <pwd.h>
#include <utility>

#include "base/configuration.h"
#include "base/text.h"
#include "base/users.h"
#include "cli/gpu_arguments.h"
#include "base/terminal.h"

namespace berth {
namespace {

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

}  // namespace

HistoryOptions last(std::chrono::hours time) {
  HistoryOptions options;
  options.since = std::chrono::system_clock::now() - time;
  return options;
}

Result<void> set_since(HistoryOptions& options, std::string_view text) {
  auto when = parse_when(text);
  if (!when) return tl::make_unexpected(when.error());
  options.since = *when;
  return {};
}

Result<void> set_user(HistoryOptions& options, std::string_view text) {
  auto user = parse_user(text);
  // Other hosts may have users that this one does not know.
  if (!user && !harbour_location().url) return tl::make_unexpected(user.error());
  options.of.uid = user ? std::optional(*user) : std::nullopt;
  options.of.user = user ? user_name(*user) : std::string(text);
  return {};
}

Result<void> set_host(HistoryOptions& options, std::string_view text) {
  if (!is_host_name(text)) {
    return fail(ErrorKind::usage,
                fmt::format("{} is no host's name: letters, digits and -_. only", in_quotes(text)));
  }
  options.of.host = text;
  return {};
}

Result<void> set_gpus(HistoryOptions& options, std::string_view text) {
  auto list = gpu_list({std::string(text)});
  if (!list) return tl::make_unexpected(list.error());
  options.gpus = std::move(*list);
  return {};
}

void declare_history_options(Flags& command, HistoryOptions& options, const char* since_help) {
  const auto to = [&options](Result<void> (*set)(HistoryOptions&, std::string_view)) {
    return [&options, set](std::string_view text) { return set(options, text); };
  };
  command.value("--since", "WHEN", since_help, to(set_since));
  command.value("--user", "NAME", "Only this user's leases", to(set_user));
  command.value("--host", "NAME", "Only leases of this host (where several share a harbour)",
                to(set_host));
  command.value("--gpu", "GPU,...", "Only leases of these GPUs, by index or UUID", to(set_gpus));
}

bool names_gpu(std::string_view list, std::string_view uuid, std::string_view index) {
  while (!list.empty()) {
    const std::string_view word = list.substr(0, list.find(','));
    if (word == uuid || word == index) return true;
    list.remove_prefix(std::min(list.size(), word.size() + 1));
  }
  return false;
}

bool wanted(const HistoryEntry& entry, const HistoryOptions& options) {
  if (!options.of.wants(entry.uid, entry.user, entry.host)) return false;
  return options.gpus.empty() ||
         std::any_of(entry.gpus.begin(), entry.gpus.end(), [&](const HistoryGpu& gpu) {
           return names_gpu(options.gpus, gpu.uuid, gpu.index);
         });
}

HistoryOptions settled(HistoryOptions options, const HarbourLocation& where) {
  if (!where.url && options.of.host == where.host) options.of.host.clear();
  return options;
}

void say_left_out(std::size_t damaged, bool truncated, const HarbourLocation& where) {
  const std::string archive = where.url ? shown(*where.url) : archive_path(where);
  if (damaged > 0) {
    say(fmt::format("{} {} of the history in {} could not be read, and {} left out", damaged,
                    damaged == 1 ? "line" : "lines", archive, damaged == 1 ? "was" : "were"));
  }
  if (truncated) {
    say(
        fmt::format("the history in {} is too large: the oldest leases of the users with the most "
                    "are left out; ask for less with --since",
                    archive));
  }
}

}  // namespace berth
