// The scheduling decision, as a pure function: which tickets of the queue are granted which GPUs.
//
// It uses no file, clock, driver or network. The directory harbour, the Redis harbour, the tests
// and a simulation of thousands of GPUs all use this same function. The rules, in order:
//
// 1. First come, first served. Tickets are decided in the order of the queue; each is granted all
//    GPUs that it asks for, or none.
// 2. The first ticket that cannot be granted makes a reservation, for the GPUs that become free
//    first. A later ticket may use a GPU of the reservation only if it announces that it ends
//    before the reservation needs the GPU. If the time at which a GPU becomes free is unknown, that
//    may be the next moment, so no later ticket may use the GPU. So the first ticket starts no
//    later than it would without the tickets behind it.
// 3. A ticket whose process is stopped is passed over: it makes no reservation and keeps its place.
// 4. A ticket that this host can never satisfy is impossible, independent of the leases.
// 5. A ticket that would measure a job which a lease or an earlier ticket measures already waits
//    for that one: it makes no reservation and keeps its place.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/quantity.h"
#include "base/time.h"
#include "schedule/request.h"

namespace berth {

// The properties of a GPU on which the decision depends.
struct GpuCondition {
  std::string uuid;
  std::string name;
  std::optional<Bytes> memory;  // the total size
  bool usable = true;           // false: lost, drained or in an unknown state
  Bytes strangers_memory;       // used by processes without a lease, including displays
  unsigned strangers = 0;       // the number of compute processes without a lease
  std::optional<unsigned> utilization_pct;
  std::optional<unsigned> memory_utilization_pct;
  bool display = false;  // drives a screen: chosen last
};

struct HeldLease {
  std::string id;
  std::vector<std::string> uuids;
  std::optional<Bytes> memory;    // reserved on each GPU; nullopt: exclusive
  Bytes observed;                 // the largest use on one of its GPUs
  std::optional<TimePoint> ends;  // nullopt: unknown
  std::string profiled_job{};     // the job type that this run measures; empty: none
};

struct QueuedTicket {
  std::string id;
  Request request;
  bool stopped = false;
  std::string profiled_job{};  // the job type that the run would measure; empty: none
};

// How well two GPUs are connected, by their indices in PlanInput::gpus: larger is better.
using Closeness = std::vector<std::vector<unsigned>>;

struct PlanInput {
  std::vector<GpuCondition> gpus;
  Closeness closeness;  // empty: unknown
  std::vector<HeldLease> leases;
  std::vector<QueuedTicket> tickets;  // in the order of the queue
  TimePoint now;
  std::uint64_t seed = 0;  // for Policy::random
};

// Why a ticket cannot be granted a suitable GPU now.
enum class BlockReason : std::uint8_t {
  unusable,   // lost, drained or in an unknown state
  leased,     // held by Blocker::leases
  strangers,  // processes without a lease run on it
  memory,     // too little memory left by Blocker::leases and strangers
  busy,       // the load is above a limit of the request, or unknown
  reserved,   // reserved for Blocker::ticket, which is earlier in the queue
};

// A suitable GPU that a ticket cannot be granted now.
struct Blocker {
  std::string uuid;
  BlockReason reason;
  std::vector<std::string> leases;
  std::string ticket;
};

struct Grant {
  std::vector<std::string> uuids;
};

struct Wait {
  std::size_t available = 0;                // GPUs that the ticket could be granted now
  std::vector<Blocker> blockers;            // the other suitable GPUs
  std::optional<TimePoint> expected_start;  // an estimate, if the blocking leases have a known end
  bool passed_over = false;                 // could be granted, but its process is stopped
  std::string profiled_by{};                // the lease or ticket that measures the same job type
};

// A request that no state of the leases could satisfy, with the figures for a message.
struct Impossible {
  std::size_t matching = 0;      // GPUs whose name, size and UUID match
  std::size_t large_enough = 0;  // matching GPUs with enough memory
  Bytes largest;                 // the memory of the largest matching GPU
};

// The decision for one ticket. Exactly one of grant, wait and impossible is set.
struct Outcome {
  std::string ticket;
  std::optional<Grant> grant;
  std::optional<Wait> wait;
  std::optional<Impossible> impossible;
};

// Returns one outcome for each ticket, in the order of the queue.
std::vector<Outcome> plan(const PlanInput& input);

// The same decision ticket by ticket, for callers that do not want to read the whole queue.
class Planner {
 public:
  // `input` must outlive this object; its tickets are ignored.
  explicit Planner(const PlanInput& input);
  Planner(Planner&&) noexcept;
  Planner& operator=(Planner&&) noexcept;
  ~Planner();

  enum class Explain : std::uint8_t { yes, no };

  // The outcome for the next ticket of the queue. The ticket must outlive this object. With
  // Explain::no, the members of a wait may be unset; this takes far less time.
  Outcome decide(const QueuedTicket& ticket, Explain explain = Explain::yes);

  // Whether the request could be granted in some state of the leases.
  bool is_possible(const Request& request);

  // Whether the caller may leave out the next ticket instead of calling decide(): the ticket is
  // granted nothing, and the outcome of each later ticket is the same without it. So it does not
  // matter whether the ticket's process is stopped, or lives at all. Once true for a ticket, it
  // stays true for all tickets with the same request and profiled job.
  bool can_leave_out(const QueuedTicket& ticket);

  // Whether no later ticket can be granted any GPU, whatever it asks for.
  bool is_exhausted() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

// The memory that must remain free on a shared GPU for CUDA contexts, which no job declares.
constexpr Bytes kContextMargin = mib(256);

}  // namespace berth
