// The history of all hosts: a Redis stream with a copy of every line that any host has written.
//
// docs/redis.md describes it. Unlike a line in a host's own files, a line of the stream contains
// the host and the name of the user, since a uid may mean another user on another host. Every
// client with the URL can write anything into the stream: an entry that is not a valid line counts
// as damaged, and a line that is too long is not even sent to the reader.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "archive/entry_view.h"
#include "base/result.h"
#include "cluster/redis/session.h"
#include "cluster/redis/url.h"

namespace berth {

// The stream keeps this many lines, and a few more. Redis removes the oldest lines first.
constexpr std::size_t kMaxStreamLines = 250'000;

// Appends the lines. After an error some may have been appended: appending them again does no harm.
Result<void> append_to_stream(RedisSession& server, const RedisUrl& url,
                              const std::vector<std::string>& lines);

// When the first line of the stream was sent; nullopt if the stream is empty.
Result<std::optional<TimePoint>> read_stream_start(RedisSession& server, const RedisUrl& url);

// A position in the stream, from which lines are read. Not thread-safe.
class HistoryStream {
 public:
  // Begins with the lines that were sent at `since` or later, with room for clocks that differ.
  // They include every line whose `ended` is `since` or later: a line is not sent before that time.
  HistoryStream(const RedisUrl& url, TimePoint since);
  // Begins with the lines that are sent from now on.
  static Result<HistoryStream> open_at_end(const RedisUrl& url);

  // Reads the next lines, a bounded number, and calls `on_entry` for each that is not damaged.
  // False: there are no more lines now.
  Result<bool> read_next(RedisSession& server, const EntryViewCallback& on_entry);

  std::size_t damaged() const { return damaged_; }

  // A blocking command that returns when there are lines to read. Its reply contains a line, which
  // may be of any size: use the reply only as a signal to call read_next().
  RedisCommand wait_command() const;

 private:
  HistoryStream(const RedisUrl& url, std::string last_id);

  std::string key_;
  std::string last_id_;  // of the entry that was read last
  EntryReader reader_;
  std::size_t damaged_ = 0;
};

}  // namespace berth
