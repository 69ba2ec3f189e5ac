// What a client of the harbour writes about itself: one record, as a ticket and then as a lease.
//
// docs/harbour-protocol.md describes the JSON. A record proves nothing by itself: its owner is the
// owner of the file, and its client lives while the bell has a reader (see harbour.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "schedule/plan.h"
#include "schedule/request.h"

namespace berth {

// The version of the protocol that this program speaks.
constexpr int kProtocolVersion = 1;

// A longer record is not one of ours.
constexpr std::size_t kMaxRecordSize = 64 << 10;

// Who ends a lease: a job does by ending; a shell's lease can also be given back while it lives.
enum class HolderKind : std::uint8_t { job, shell };

// In the order in which one reads of it, not of its sizes. NOLINTNEXTLINE(*.performance.Padding)
struct Record {
  int version = kProtocolVersion;
  std::string id;
  uid_t uid = 0;  // of the file's owner, whatever the text says
  pid_t pid = 0;  // of the process that waits, or for which the lease was made
  std::uint64_t pid_namespace = 0;
  HolderKind holder = HolderKind::job;
  std::string command;
  std::string label;
  std::string job;  // its type, if it has one; see docs/learning.md
  // It is to be measured, and others of its type and user wait until it has been.
  bool is_profiling_run = false;
  TimePoint since;  // when it asked
  Request request;
  std::string parent_lease;  // the lease that this one was carved out of, or nothing
  // In a harbour of several hosts: the directory in which its bell is (see
  // Harbour::directory_id()).
  std::string directory_id;
  // Of a ticket: the number in its file's name, so that another name (a hard link) does not count.
  std::optional<std::uint64_t> order;

  // Of a lease:
  std::vector<std::string> uuids;
  TimePoint granted;
  std::uint64_t epoch = 0;  // see Transaction::next_epoch()
  bool sampled = false;  // its holder looks at it, and tells by touching the file that it is used
  TimePoint last_used;   // when it last did, or was granted
  bool holds_all_gpus = false;  // which GPUs it holds cannot be read: it counts as holding all
  // Why it could not be read whole, although its holder lives (see parse_damaged_lease()).
  std::string problem{};

  // When it said that it will have ended.
  std::optional<TimePoint> expected_end() const;
};

// The record as JSON text: a lease if it names GPUs, else a ticket.
std::string format_record(const Record& record);

// The error says what is wrong, for doctor. A record of a later version is read as far as every
// version can be: whose it is and which GPUs it holds. If not even that is clear, it holds all.
Result<Record> parse_record(std::string_view text);

// A lease whose record parse_record() refuses, as far as it can be read: exclusively the GPUs that
// it names, or all. An unknown lease is not a free GPU.
Record parse_damaged_lease(std::string_view text, std::string problem);

// Random, short, and unlike any other in this harbour: 8 letters and digits.
std::string make_id();
bool is_id(std::string_view text);

}  // namespace berth
