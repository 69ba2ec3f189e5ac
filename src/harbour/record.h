// The record of a client: what a ticket or lease is, as JSON.
//
// A client writes a record as a ticket while it waits, and another one as a lease when it is
// granted GPUs. A record proves nothing by itself: its owner is the owner of the file, and its
// client lives while its bell has a reader (see harbour.h). Any user can write any text, so parsing
// trusts nothing. docs/harbour-protocol.md describes the JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "schedule/plan.h"
#include "schedule/request.h"

namespace berth {

// The version of the protocol that this program implements.
constexpr int kProtocolVersion = 1;

// In bytes. Berth never writes a longer record.
constexpr std::size_t kMaxRecordSize = 64 << 10;

// A job's lease ends with the processes of the job. A shell's lease ends with the shell, and its
// owner or root can also end it before ('berth release').
enum class HolderKind : std::uint8_t { job, shell };

// The members are in an order for readers, not for size. NOLINTNEXTLINE(*.performance.Padding)
struct Record {
  int version = kProtocolVersion;
  std::string id;
  uid_t uid = 0;                    // after reading: the owner of the file, whatever the text says
  pid_t pid = 0;                    // the process that waits, or for which the lease was made
  std::uint64_t pid_namespace = 0;  // in which `pid` is valid
  HolderKind holder = HolderKind::job;
  std::string command;
  std::string label;
  std::string job;  // the job type; empty if there is none (see docs/learning.md)
  // This run measures its job type. Other tickets of the same type and user wait for the result.
  bool is_profiling_run = false;
  TimePoint since;  // when the client asked
  Request request;
  // The run time in the request is that of earlier runs; the user has not announced one.
  bool time_is_estimated = false;
  std::string parent_lease;  // the id of the lease that this one is a part of; empty for most
  // Of a job of `berth run --host`: the id by which its user knows it, and the host on which it was
  // submitted. A ticket of several hosts has the job's id itself; a lease that it led to does not.
  std::string job_id{};
  std::string job_host{};
  // With a server: the directory that has the client's bell (see Harbour::directory_id()).
  std::string directory_id;
  // For a ticket: TicketName::file_number ("order" in the JSON). In a file of another name (a hard
  // link that another user made) the record does not count.
  std::optional<std::uint64_t> file_number;

  // Only for a lease:
  std::vector<std::string> uuids;  // the GPUs
  TimePoint granted;
  std::uint64_t epoch = 0;  // see Transaction::next_epoch()
  bool sampled = false;     // the holder touches the record's file while its GPUs are used
  TimePoint last_used;      // the time of the last touch, or of the grant
  // Set: the process `pid` ran before the lease was made for it ('berth adopt'). When it was
  // started, in clock ticks since the host started: with the PID, this identifies the process.
  std::optional<std::uint64_t> adopted_start;
  bool holds_all_gpus = false;  // the GPUs cannot be read, so the lease counts as holding all
  // Why the record cannot be read completely although the holder lives (see parse_damaged_lease()).
  std::string problem{};

  // False for a lease whose record is damaged: of that only the id, the owner and perhaps the GPUs
  // are known.
  bool is_readable() const { return problem.empty() || granted != TimePoint{}; }
  // When the lease will end by the run time that its request names.
  std::optional<TimePoint> expected_end() const;
};

// The record as JSON text: a lease if it has GPUs, else a ticket. Cuts a long command.
std::string format_record(const Record& record);

// A hash of everything in the record on which a decision about the ticket depends, beside its owner
// and its place: the request, the PID namespace, and the job type that the run would measure.
std::uint64_t hash_request(const Record& record);

// The error (ErrorKind::io) says what is wrong, as 'berth doctor' shows it. Of a record of a later
// version it reads only the fields that every version has: the id, the owner and the GPUs. If the
// GPUs cannot be read, the record counts as holding all.
Result<Record> parse_record(std::string_view text);

// What can be read of a lease whose record parse_record() refuses. It holds the GPUs that the text
// names, exclusively, or all GPUs if the text names none: a GPU must not count as free because its
// lease cannot be read.
Record parse_damaged_lease(std::string_view text, std::string problem);

// A new random id: 8 letters and digits, with a negligible chance of a collision in one harbour.
std::string make_id();
bool is_id(std::string_view text);

}  // namespace berth
