// Fuzzes lines of the history. Any user can write such lines, and berth of all users reads them.
#include <nlohmann/json.hpp>

#include "archive/entry_view.h"
#include "archive/history.h"
#include "fuzz/fuzz.h"

namespace berth {

void fuzz(std::string_view input) {
  const auto entry = parse_entry(input);
  if (!entry) return;
  check(nlohmann::json::accept(input), "an accepted line is JSON");
  check(entry->id.size() <= EntryLimits::kIdBytes &&
            entry->command.size() <= EntryLimits::kCommandBytes &&
            entry->label.size() <= EntryLimits::kLabelBytes &&
            entry->job.size() <= EntryLimits::kJobBytes && entry->gpus.size() <= EntryLimits::kGpus,
        "long texts and lists are cut");
  const std::string written = serialize_entry(*entry);
  check(written.find('\n') == std::string::npos, "an entry is one line");
  EntryReader reader;
  check(reader.read(written) != nullptr, "what was read can be written and read again");
  check(reader.was_canonical(), "lines that Berth wrote are read by the fast parser");
  const auto again = parse_entry(written);
  check(serialize_entry(*again) == written, "writing keeps every field");
  check(lease_key(*again) == lease_key(*entry), "the lease is the same");
}

}  // namespace berth
