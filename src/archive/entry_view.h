// Reads a line of the history into a struct of views. Most readers discard most lines, so copying
// all texts would be a waste.
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
#include "base/json_cursor.h"

namespace berth {

struct GpuView {
  std::string_view uuid;
  std::string_view index;
  std::string_view name;
  std::optional<std::uint64_t> peak{};
  std::optional<unsigned> utilization_pct{};
  std::optional<unsigned> power_mw{};
};

// The members are those of HistoryEntry. Times are milliseconds since 1970, at most the year 2096.
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
  bool adopted = false;
  std::string_view host{};
  std::string_view user{};
  std::string_view job_id{};
  std::string_view job_host{};
};

inline LeaseKey lease_key(const EntryView& view) {
  return {std::string(view.host), view.uid, std::string(view.id)};
}

// The form of times in the lines.
inline std::int64_t to_ms(TimePoint time) {
  return std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

// The entry must live as long as the view.
EntryView make_entry_view(const HistoryEntry& entry);
HistoryEntry make_entry(const EntryView& view);

// Reads one line after the other into the same view. Not thread-safe.
class EntryReader {
 public:
  // Null if the line is damaged. Cuts texts that are too long (EntryLimits). The view is valid
  // until the next call, and while `line` exists.
  EntryView* read(std::string_view line);

  // Did the last line have exactly the form that serialize_entry() writes? Such lines are read
  // about twice as fast.
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
  unsigned fields_read_ = 0;  // the required fields that were read, as bits
  bool gpus_valid_ = true;    // each GPU so far has a UUID
  bool canonical_ = false;
  std::string decoded_;  // strings that had escapes; views point into it
};

// Reads the complete lines of a history file from `offset` on, and sets `offset` behind the last
// one (a line without its line break may be incomplete). Returns the number of damaged lines. A
// line about another user's lease counts as damaged, except in root's folder: root records dead
// leases of other users.
using EntryViewCallback = std::function<void(const EntryView& view)>;
std::size_t read_entry_views(const UserFolder& folder, const std::string& file, off_t& offset,
                             const EntryViewCallback& on_view);

}  // namespace berth
