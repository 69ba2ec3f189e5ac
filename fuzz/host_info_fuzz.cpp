// Fuzzes the information about a host's GPUs that other hosts read from Redis.
#include "cluster/store/host_info.h"
#include "fuzz/fuzz.h"

namespace berth {

void fuzz(std::string_view input) {
  const auto info = parse_host_info(input);
  if (!info) {
    check(is_printable(info.error().message), "the error is printable");
    return;
  }
  HostView view;
  view.gpus = info->gpus;
  const std::string written = format_host_info(view, info->driver, info->simulated);
  const auto again = parse_host_info(written);
  check(again.has_value(), "what was read can be written and read again");
  HostView same;
  same.gpus = again->gpus;
  check(format_host_info(same, again->driver, again->simulated) == written,
        "writing keeps every field");
}

}  // namespace berth
