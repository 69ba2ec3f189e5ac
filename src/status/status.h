// The state of this host's GPUs, leases and queue, ready to be shown.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "devices/probe.h"
#include "harbour/harbour.h"
#include "status/gpu_state.h"
#include "status/host_view.h"

namespace berth {

struct GpuStatus {
  GpuWithLeases view;
  GpuStateReason state_reason;
};

struct TicketStatus {
  Record record;
  std::size_t position = 0;  // from 1
  std::string reason;        // why it waits; one line, not yet made fit for a terminal
  std::optional<TimePoint> starts;
};

struct Status {
  std::string host;
  // Of another host: how old is what its driver said, if anybody knows. Leases and queue are not.
  bool is_remote = false;
  std::optional<std::chrono::seconds> age{};
  std::string problem{};              // why nothing is known of its GPUs
  std::optional<std::string> driver;  // its version
  bool simulated = false;             // these are not real GPUs
  std::vector<GpuStatus> gpus;
  std::vector<Record> leases;  // also those that were carved out of another
  std::vector<TicketStatus> queue;
  std::vector<IgnoredEntry> ignored_entries;  // files in the harbour that do not count
};

// What the harbour holds at one moment, without asking any driver.
struct HarbourContents {
  std::vector<Record> leases;
  std::vector<Record> tickets;  // in the order of the queue
  std::vector<TicketName> ticket_names;
  std::vector<bool> stopped;  // of each ticket
  std::vector<Drain> drains;
  std::vector<IgnoredEntry> ignored_entries;
};
Result<HarbourContents> read_contents(Harbour& harbour);
// Under the lock: `stopped` then has only those that do not answer their bell.
Result<HarbourContents> read_contents(Transaction& transaction);
// Adds those whose processes are stopped, by /proc: not under the lock.
void mark_stopped_tickets(HarbourContents& contents);

// From what is known of one host.
Status make_status(std::string host, HarbourContents contents, HostView view,
                   const Topology& topology);

// Asks the driver once, and reads the harbour under its lock. Makes no harbour where there is none.
// Errors are the probe's and the harbour's: where the leases cannot be read, nobody can say what is
// free.
Result<Status> observe_host(Probe& probe, bool simulated,
                            HarbourLocation where = harbour_location());

// Since when nothing is computed under a lease, where that is long enough to be told; nothing if it
// is used, or nobody can say.
std::optional<TimePoint> idle_since(const Record& lease, TimePoint now);

std::string host_name();

// What this host is called there: a harbour of several may know it by another name.
std::string local_host_name(const HarbourLocation& where);

}  // namespace berth
