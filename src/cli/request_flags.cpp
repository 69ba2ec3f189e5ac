// The flags of a request; see request_flags.h.
#include "cli/request_flags.h"

#include <fmt/format.h>
#include <string>
#include <string_view>
#include <utility>

namespace berth {

std::shared_ptr<RequestOptions> add_request_flags(Flags& command, WaitLimits limits) {
  auto options = std::make_shared<RequestOptions>();
  command.group("Request");
  declare_request_values(
      options, [&](const char* names, const char* type, const char* help, ReadValue take) {
        const std::string flag = std::string(names).substr(std::string_view(names).rfind("--"));
        if (flag == "--timeout" && limits == WaitLimits::none) return;
        command.value(names, type, help,
                      [options, flag, take = std::move(take)](std::string_view text) {
                        auto taken = take(text);
                        if (taken) options->words.push_back(fmt::format("{}={}", flag, text));
                        return taken;
                      });
      });
  if (limits == WaitLimits::offered) {
    command.flag("--no-wait", options->no_wait, "Give up at once if the GPUs are not free");
  }
  command.group("Options");
  command.finally([options]() { return check_request(*options, ArgumentStyle::flags); });
  return options;
}

}  // namespace berth
