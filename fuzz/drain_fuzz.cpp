// Fuzzes the files of drains in the harbour.
#include "fuzz/fuzz.h"
#include "harbour/drain.h"

namespace berth {

void fuzz(std::string_view input) {
  const auto drain = parse_drain(input);
  if (!drain) {
    check(is_printable(drain.error().message), "the error is printable");
    return;
  }
  const std::string written = format_drain(*drain);
  const auto again = parse_drain(written);
  check(again.has_value(), "what was read can be written and read again");
  check(again->uuid == drain->uuid && again->reason == drain->reason, "texts are kept");
  check(again->since == drain->since, "the time is kept");
}

}  // namespace berth
