// The history of all hosts: a stream in Redis with a copy of every line that any host has written.
//
// docs/redis.md describes it. A line there also has the host and the name of the user, since a uid
// means another user elsewhere. Whoever can write to Redis can write anything: what is no line of
// ours, or longer than one can be, is damaged, and costs its readers nothing.
#pragma once

#include <string>
#include <vector>

#include "archive/entry_view.h"
#include "base/result.h"
#include "cluster/redis/session.h"
#include "cluster/redis/url.h"

namespace berth {

// So many lines are kept, and a few more; the oldest go first.
constexpr std::size_t kMaxStreamLines = 250'000;

// Adds them. A failure may have added some: who sends them again does no harm.
Result<void> append_to_stream(RedisSession& server, const RedisUrl& url,
                              const std::vector<std::string>& lines);

class HistoryStream {
 public:
  // What was sent at that time or later. What ended then was sent then at the earliest.
  HistoryStream(const RedisUrl& url, TimePoint since);
  // What is sent from now on.
  static Result<HistoryStream> open_at_end(const RedisUrl& url);

  // The next lines, a bounded number of them; false if there are no more, by now. `on_entry` gets
  // those that are not damaged.
  Result<bool> read_next(RedisSession& server, const EntryViewCallback& on_entry);

  std::size_t damaged() const { return damaged_; }

  // The command that waits for what comes next: its answer says that there is something, and may be
  // of any size.
  RedisCommand wait_command() const;

 private:
  HistoryStream(const RedisUrl& url, std::string last_id);

  std::string key_;
  std::string last_id_;  // the id of what was read last
  EntryReader reader_;
  std::size_t damaged_ = 0;
};

}  // namespace berth
