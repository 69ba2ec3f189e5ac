// The flags that `berth log` and `berth report` share; see history_options.h.
#include "cli/history_options.h"

#include <fmt/format.h>
#include <string_view>

#include "base/terminal.h"

namespace berth {

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
