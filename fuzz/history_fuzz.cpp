// Lines of the history, which each user writes and everyone reads.
#include <nlohmann/json.hpp>

#include "archive/entry_view.h"
#include "archive/history.h"
#include "fuzz/fuzz.h"

namespace berth {

void fuzz(std::string_view input) {
  const auto entry = read_entry(input);
  if (!entry) return;
  check(nlohmann::json::accept(input), "what is accepted is JSON");
  check(entry->id.size() <= EntryLimits::id && entry->command.size() <= EntryLimits::command &&
            entry->label.size() <= EntryLimits::label && entry->job.size() <= EntryLimits::job &&
            entry->gpus.size() <= EntryLimits::gpus,
        "long texts and lists are cut");
  const std::string written = write_entry(*entry);
  check(written.find('\n') == std::string::npos, "an entry is one line");
  EntryReader reader;
  check(reader.read(written) != nullptr, "what was read can be written and read again");
  check(reader.was_as_written(), "lines of ours are read the fast way");
  const auto again = read_entry(written);
  check(write_entry(*again) == written, "writing keeps every field");
  check(key_of(*again) == key_of(*entry), "the lease is the same");
}

}  // namespace berth
