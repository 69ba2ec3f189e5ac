// Declares the flags of a GPU request; see request_flags.h.
#include "cli/request_flags.h"

#include <fmt/format.h>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/configuration.h"
#include "base/terminal.h"
#include "lease/sublease.h"

namespace berth {
namespace {

bool is_given(const Flags& command, std::string_view flag) {
  const Option* const option = command.find(flag);
  return option != nullptr && option->times_given > 0;
}

// Whether the default of `flag` would contradict the command line, or the lease that it runs in.
bool is_default_excluded(const Flags& command, std::string_view flag) {
  if (is_given(command, flag)) return true;
  if (is_given(command, "--job-spec")) return true;  // the sending host has applied its defaults
  if (flag != "--mem") return false;
  if (is_given(command, "--per-gpu")) return true;
  // A lease of this host means nothing on other hosts.
  return !is_given(command, "--host") && runs_inside_lease();
}

// Applies the table [defaults] of the configuration to the flags that were not given.
Result<void> apply_defaults(const Flags& command) {
  const auto configuration = read_configuration();
  if (!configuration) return {};  // the command reports it when it opens the harbour
  for (const auto& [name, setting] : configuration->request_defaults) {
    const std::string flag = fmt::format("--{}", name);
    const Option* const option = command.find(flag);
    if (option == nullptr || is_default_excluded(command, flag)) continue;
    if (const auto stored = option->parse(setting.value); !stored)
      return tl::make_unexpected(request_default_error(name, setting, stored.error().message));
  }
  return {};
}

// Explains sizes that the user has typed. Only on a terminal: the log of a nightly job should not
// have the same notice each day.
void explain_decimal_sizes(const std::vector<std::string>& typed_flags) {
  if (::isatty(STDERR_FILENO) == 0) return;
  for (const std::string_view given : typed_flags) {
    const std::size_t equals = given.find('=');
    const std::string_view flag = given.substr(0, equals);
    if (flag != "--mem" && flag != "--min-mem") continue;
    if (const auto text = explain_decimal_size(flag, given.substr(equals + 1)))
      print_message(*text);
  }
}

}  // namespace

void add_start_flags(Flags& command, const std::shared_ptr<void>& owner,
                     StartConditions& conditions) {
  command.add_repeated_value(
      "--after", "ID,...", "Wait until these jobs have succeeded",
      [owner, &conditions](std::string_view text) { return add_job_ids(text, conditions.after); });
  command.add_repeated_value("--after-any", "ID,...", "Wait until these jobs have ended, however",
                             [owner, &conditions](std::string_view text) {
                               return add_job_ids(text, conditions.after_any);
                             });
  command.add_value(
      "--begin", "TIME", "Wait until this time: 18:00, tomorrow 9:00, 2h (from now\non) or a date",
      [owner, &conditions](std::string_view text) -> Result<void> {
        conditions.begin = TRY(parse_begin_time(text, std::chrono::system_clock::now()));
        return {};
      });
}

void add_notify_flag(Flags& command, const std::shared_ptr<void>& owner, NotifyOptions& options) {
  command.add_repeated_value(
      "--notify", "WHAT",
      "Notify when the job ends: command, webhook, mail or bell;\n"
      "mail:granted,failed chooses events (docs/notifications.md)",
      [owner, &options](std::string_view text) { return add_notify_choice(text, options); });
}

std::shared_ptr<RequestOptions> add_request_flags(Flags& command, WaitLimits limits) {
  auto options = std::make_shared<RequestOptions>();
  command.set_group("Request");
  declare_request_values(options, [&](const char* names, const char* type, const char* help,
                                      RequestValueReader parse) {
    const std::string flag = std::string(names).substr(std::string_view(names).rfind("--"));
    if (flag == "--timeout" && limits == WaitLimits::none) return;
    command.add_value(names, type, help,
                      [options, flag, parse = std::move(parse)](std::string_view text) {
                        auto parsed = parse(text);
                        if (parsed) options->flags.push_back(fmt::format("{}={}", flag, text));
                        return parsed;
                      });
  });
  if (limits == WaitLimits::offered) {
    command.add_flag("--no-wait", options->no_wait, "Give up at once if the GPUs are not free");
  }
  command.set_group("Options");
  command.set_check([options, &command]() -> Result<void> {
    const std::vector<std::string> typed = options->flags;
    TRY(apply_defaults(command));
    TRY(validate_request(*options, ArgumentStyle::flags));
    // Not in the commands that another berth starts.
    if (!is_given(command, "--event-fd") && !is_given(command, "--job-spec"))
      explain_decimal_sizes(typed);
    return {};
  });
  return options;
}

}  // namespace berth
