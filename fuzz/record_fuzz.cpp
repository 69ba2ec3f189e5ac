// Fuzzes records in the harbour, which any user can write.
#include "fuzz/fuzz.h"
#include "harbour/record.h"

namespace berth {

void fuzz(std::string_view input) {
  const auto record = parse_record(input);
  if (!record) {
    check(is_printable(record.error().message), "the error is printable");
    return;
  }
  (void)record->expected_end();  // must not overflow
  if (record->version > kProtocolVersion) {
    check(record->holds_all_gpus || !record->uuids.empty(), "a later version holds GPUs");
    return;
  }
  const std::string written = format_record(*record);
  const auto again = parse_record(written);
  check(again.has_value(), "what was read can be written and read again");
  check(format_record(*again) == written, "writing keeps every field");
  check(again->uuids.size() == record->uuids.size(), "no GPU is lost");
  check(again->request.count == record->request.count, "the count is kept");
}

}  // namespace berth
