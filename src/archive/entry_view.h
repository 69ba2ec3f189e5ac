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
  std::string_view within;
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

inline LeaseKey key_of(const EntryView& view) {
  return {std::string(view.host), view.uid, std::string(view.id)};
}

// As the lines have times.
inline std::int64_t to_ms(TimePoint time) {
  return std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

// Of an entry that lives as long as the view.
EntryView view_of(const HistoryEntry& entry);
HistoryEntry entry_of(const EntryView& view);

// Reads line after line into the same place.
class EntryReader {
 public:
  // Nothing if the line is damaged. Texts that are too long are cut (EntryLimits). The view is true
  // until the next one is read, or `line` is gone.
  EntryView* read(std::string_view line);

  // Was the last line just as write_entry() writes them? Such lines are read about twice as fast.
  bool was_as_written() const { return as_written_; }

 private:
  void clear();
  EntryView* bounded();
  bool read_as_written(JsonCursor& in);
  bool gpus_as_written(JsonCursor& in);
  bool member(JsonCursor& in, std::string_view key);
  bool gpu(JsonCursor& in);
  bool gpu_list(JsonCursor& in);
  bool must_be_text(JsonCursor& in, std::string_view& target, unsigned part);
  bool must_be_time(JsonCursor& in, std::int64_t& target, unsigned part);
  bool must_be_user(JsonCursor& in);
  bool must_be_ending(JsonCursor& in);
  bool idle_if_any(JsonCursor& in);

  EntryView view_;
  unsigned read_ = 0;      // which parts that a line must have were read
  bool gpus_good_ = true;  // each of them has a UUID
  bool as_written_ = false;
  std::string decoded_;
};

// The lines of one of a user's files from `done` on; see read_lines(), which gives them as entries.
using TakeView = std::function<void(const EntryView& view)>;
std::size_t read_views(const UserFolder& folder, const std::string& file, off_t& done,
                       const TakeView& take);

}  // namespace berth
