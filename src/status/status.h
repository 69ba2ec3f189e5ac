// The state of a host's GPUs, leases and queue, for display.
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
#include "status/lease_end.h"

namespace berth {

struct GpuStatus {
  GpuWithLeases view;
  GpuStateReason state_reason;
};

struct TicketStatus {
  Record record;
  std::size_t position = 0;  // from 1
  // Why it waits; one line. May have control characters, so printable() before it is shown.
  std::string reason;
  std::optional<TimePoint> starts;  // an estimate
  // Why `starts` is unknown; empty if it is known, or if `reason` says it. As `reason`, not
  // escaped.
  std::string start_unknown_reason{};
};

struct Status {
  std::string host;
  TimePoint time;          // when it was made; all estimates are for this time
  bool is_remote = false;  // another host, whose driver was not asked
  // The age of the GPU data of a remote host, if it is known. Its leases and queue are always
  // current.
  std::optional<std::chrono::seconds> age{};
  std::string problem{};              // why the state of the GPUs is unknown
  std::optional<std::string> driver;  // the driver's version
  bool simulated = false;             // the GPUs are not real
  std::vector<GpuStatus> gpus;
  std::optional<NextFree> next_free{};  // see find_next_free()
  std::vector<Record> leases;           // with leases inside other leases
  std::vector<TicketStatus> queue;
  std::vector<IgnoredEntry> ignored_entries;  // files in the harbour that do not count
};

// The leases, tickets and drains of the harbour at one moment. Long texts are truncated.
struct HarbourContents {
  std::vector<Record> leases;
  std::vector<Record> tickets;  // in the order of the queue
  std::vector<TicketName> ticket_names;
  std::vector<bool> stopped;  // for each ticket: its client does not run
  std::vector<Drain> drains;
  std::vector<IgnoredEntry> ignored_entries;
};
Result<HarbourContents> read_contents(Harbour& harbour);
// The same under the lock that the caller holds. `stopped` then has only the clients that do not
// read their bell.
Result<HarbourContents> read_contents(Transaction& transaction);
// Adds the clients whose processes are stopped to `stopped`. Reads /proc, so never call it under
// the lock.
void mark_stopped_tickets(HarbourContents& contents);

Status make_status(std::string host, HarbourContents contents, HostView view,
                   const Topology& topology, TimePoint now);

// The status of this host. Asks the driver once, and reads the harbour under its lock. Creates no
// harbour. Errors are those of the driver and of the harbour: without the leases it is unknown
// which GPUs are free.
Result<Status> observe_host(Probe& probe, bool simulated,
                            HarbourLocation where = harbour_location());

// The time since which the GPUs of a lease are idle. Nothing if they are in use, were used in the
// last minutes, or this is unknown.
std::optional<TimePoint> idle_since(const Record& lease, TimePoint now);

// This host's name in the harbour; a harbour of several hosts may know it by another name than the
// kernel does.
std::string local_host_name(const HarbourLocation& where);

}  // namespace berth
