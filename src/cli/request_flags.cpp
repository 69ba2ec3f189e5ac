// Declares the flags of a GPU request; see request_flags.h.
#include "cli/request_flags.h"

#include <fmt/format.h>
#include <string>
#include <string_view>
#include <utility>

namespace berth {

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
  command.set_check([options]() { return validate_request(*options, ArgumentStyle::flags); });
  return options;
}

}  // namespace berth
