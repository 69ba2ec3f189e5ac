// The flags that `berth log` and `berth report` share; see history_flags.h.
#include "cli/history_flags.h"

#include <fmt/format.h>
#include <string_view>

#include "base/terminal.h"

namespace berth {

void add_history_flags(Flags& command, HistoryFilter& options, const char* since_help) {
  const auto setter = [&options](Result<void> (*set)(HistoryFilter&, std::string_view)) {
    return [&options, set](std::string_view text) { return set(options, text); };
  };
  command.add_value("--since", "WHEN", since_help, setter(set_since));
  command.add_value("--user", "NAME", "Only this user's leases", setter(set_user));
  command.add_value("--host", "NAME", "Only leases on this host (if several share a harbour)",
                    setter(set_host));
  command.add_value("--gpu", "GPU,...", "Only leases on these GPUs, by index or UUID",
                    setter(set_gpus));
}

void warn_about_omitted_history(std::size_t damaged, bool truncated, const HarbourLocation& where) {
  const std::string archive = where.url ? format_redacted_url(*where.url) : archive_path(where);
  if (damaged > 0) {
    print_message(fmt::format("{} {} of the history in {} could not be read, and {} left out",
                              damaged, damaged == 1 ? "line" : "lines", archive,
                              damaged == 1 ? "was" : "were"));
  }
  if (truncated) {
    print_message(
        fmt::format("the history in {} is too large: the oldest leases of the users with the most "
                    "leases are left out; choose a shorter time with --since",
                    archive));
  }
}

}  // namespace berth
