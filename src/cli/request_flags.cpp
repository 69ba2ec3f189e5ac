// Declares the flags of a GPU request; see request_flags.h.
#include "cli/request_flags.h"

#include <algorithm>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <utility>

#include "base/configuration.h"
#include "base/environment.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "base/text.h"

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
  return is_given(command, "--per-gpu") || !get_env_or_empty("BERTH_LEASE").empty();
}

// Applies the table [defaults] of the configuration to the flags that were not given.
Result<void> apply_defaults(const Flags& command) {
  const auto configuration = read_configuration();
  if (!configuration) return {};  // the command reports it when it opens the harbour
  for (const auto& [name, setting] : configuration->request_defaults) {
    const std::string flag = fmt::format("--{}", name);
    const Option* const option = command.find(flag);
    if (option == nullptr || is_default_excluded(command, flag)) continue;
    if (const auto stored = option->parse(setting.value); !stored) {
      return fail(ErrorKind::usage, fmt::format("{} in {}: {}", name, printable(setting.source),
                                                stored.error().message));
    }
  }
  return {};
}

// Says what a size in decimal units ("8GB") is, since most users who write it mean 8 GiB. Only in
// the command that the user calls, not in those that it starts.
void explain_decimal_sizes(const Flags& command, const RequestOptions& options) {
  if (is_given(command, "--event-fd") || is_given(command, "--job-spec")) return;
  for (const std::string_view given : options.flags) {
    const std::size_t equals = given.find('=');
    const std::string_view flag = given.substr(0, equals);
    const std::string_view size = given.substr(equals + 1);
    const std::string unit = lower_case(size.substr(std::max<std::size_t>(size.size(), 2) - 2));
    const bool is_decimal = unit == "kb" || unit == "mb" || unit == "gb" || unit == "tb";
    if (!is_decimal || (flag != "--mem" && flag != "--min-mem")) continue;
    std::string binary(size.substr(0, size.size() - 2));
    binary += static_cast<char>(unit.front() - 'a' + 'A');
    binary += "iB";
    print_message(fmt::format("{} {} is {}; if you mean {}, write {}", flag, size,
                              format_size(*parse_size(size)), format_size(*parse_size(binary)),
                              binary));
  }
}

}  // namespace

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
    TRY(apply_defaults(command));
    explain_decimal_sizes(command, *options);
    return validate_request(*options, ArgumentStyle::flags);
  });
  return options;
}

}  // namespace berth
