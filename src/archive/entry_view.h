// A line of the history as it is read: its texts are views, so that nobody pays for copies of what
// he throws away.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "archive/history.h"
#include "archive/json_cursor.h"

namespace berth {

struct GpuView {
  std::string_view uuid;
  std::string_view index;
  std::string_view name;
  std::optional<std::uint64_t> peak{};
  std::optional<unsigned> utilization_pct{};
};

// See HistoryEntry. Times are milliseconds since 1970, none after the year 2096.
struct EntryView {
  std::string_view id;
  uid_t uid = 0;
  std::string_view command;
  std::string_view label;
  std::string_view job;
  std::string_view parent_lease;
  std::vector<GpuView> gpus;
  std::optional<std::uint64_t> memory;
  std::int64_t asked_ms = 0;
  std::int64_t granted_ms = 0;
  std::int64_t ended_ms = 0;
  Ending ending = Ending::running;
  int code = 0;
  std::optional<std::int64_t> idle_ms;
  std::string_view host{};
  std::string_view user{};
};

inline LeaseKey lease_key(const EntryView& view) {
  return {std::string(view.host), view.uid, std::string(view.id)};
}

// As the lines have times.
inline std::int64_t to_ms(TimePoint time) {
  return std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

// Of an entry that lives as long as the view.
EntryView make_entry_view(const HistoryEntry& entry);
HistoryEntry make_entry(const EntryView& view);

// Reads line after line into the same place.
class EntryReader {
 public:
  // Nothing if the line is damaged. Texts that are too long are cut (EntryLimits). The view is true
  // until the next one is read, or `line` is gone.
  EntryView* read(std::string_view line);

  // Was the last line just as serialize_entry() writes them? Such lines are read about twice as
  // fast.
  bool was_canonical() const { return canonical_; }

 private:
  void clear();
  EntryView* truncate_texts();
  bool read_canonical(JsonCursor& in);
  bool read_canonical_gpus(JsonCursor& in);
  bool read_member(JsonCursor& in, std::string_view key);
  bool read_gpu(JsonCursor& in);
  bool read_gpu_list(JsonCursor& in);
  bool read_required_text(JsonCursor& in, std::string_view& target, unsigned field);
  bool read_required_time(JsonCursor& in, std::int64_t& target, unsigned field);
  bool read_uid(JsonCursor& in);
  bool read_ending(JsonCursor& in);
  bool read_idle(JsonCursor& in);

  EntryView view_;
  unsigned fields_read_ = 0;  // which parts that a line must have were read
  bool gpus_valid_ = true;    // each of them has a UUID
  bool canonical_ = false;
  std::string decoded_;
};

// The lines of one of a user's files from `offset` on; see read_entries(), which gives them as
// entries.
using EntryViewCallback = std::function<void(const EntryView& view)>;
std::size_t read_entry_views(const UserFolder& folder, const std::string& file, off_t& offset,
                             const EntryViewCallback& on_view);

}  // namespace berth
