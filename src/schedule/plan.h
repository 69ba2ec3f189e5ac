// Who gets which GPUs now: the one decision that everything else serves, as a pure function.
//
// It touches no file, clock, driver or network: the directory harbour, the Redis harbour, the tests
// and a simulation of thousands of GPUs all use this same one. The rules, in order:
//
// 1. First come, first served: tickets are looked at in the order of the queue, each is granted all
//    it asks for or nothing.
// 2. The first ticket that cannot be granted reserves. The GPUs that it will get first are chosen
// by
//    when they come free; a later ticket may use a GPU that the reservation wants only if it says
//    that it will have ended by then. Where nobody knows when a GPU comes free, it might be the
//    next moment, so no later ticket may use it at all. So the first ticket starts no later than it
//    would if nobody stood behind it.
// 3. A ticket whose process is stopped is passed over, reserves nothing, and keeps its place.
// 4. A ticket that this host can never satisfy is impossible, whatever the leases.
// 5. A ticket that is to measure what a lease or an earlier ticket measures already waits for that,
//    reserves nothing, and keeps its place.
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

// A GPU as far as the decision cares.
struct GpuCondition {
  std::string uuid;
  std::string name;
  std::optional<Bytes> memory;  // its size
  bool usable = true;           // not lost, drained or unknown
  Bytes strangers_memory;       // what processes without a lease use, displays included
  unsigned strangers = 0;       // how many of them compute
  std::optional<unsigned> utilization_pct;
  std::optional<unsigned> memory_utilization_pct;
  bool display = false;  // drives a screen: taken last among equals
};

struct HeldLease {
  std::string id;
  std::vector<std::string> uuids;
  std::optional<Bytes> memory;  // reserved on each GPU; nothing: exclusive
  Bytes observed;               // the most that it uses on one of them
  std::optional<TimePoint> ends;
  std::string profiled_job{};  // what it measures for others, if anything
};

struct QueuedTicket {
  std::string id;
  Request request;
  bool stopped = false;
  std::string profiled_job{};  // what it would measure
};

// How well two GPUs are connected, by their positions among the conditions: larger is better.
using Closeness = std::vector<std::vector<unsigned>>;

struct PlanInput {
  std::vector<GpuCondition> gpus;
  Closeness closeness;  // empty if nobody knows
  std::vector<HeldLease> leases;
  std::vector<QueuedTicket> tickets;  // in the order of the queue
  TimePoint now;
  std::uint64_t seed = 0;  // for Policy::random
};

// Why a GPU that would do is not to be had now.
enum class BlockReason : std::uint8_t {
  unusable,   // lost, drained or unknown
  leased,     // by the leases of `leases`
  strangers,  // processes without a lease
  memory,     // not enough left, beside the leases of `leases` and strangers
  busy,       // above a threshold of the request, or its load is unknown
  reserved,   // for the ticket `ticket`, which came first
};

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
  std::size_t available = 0;      // how many GPUs it could have now, if that were enough
  std::vector<Blocker> blockers;  // each of the others that would do
  std::optional<TimePoint>
      expected_start;         // an estimate, if the leases in the way say when they end
  bool passed_over = false;   // it is stopped, and could have been granted
  std::string profiled_by{};  // the lease or ticket that measures what it would measure
};

// What this host has, to say what would fit.
struct Impossible {
  std::size_t matching = 0;      // GPUs of the right name, size and UUID
  std::size_t large_enough = 0;  // of these, with so much memory
  Bytes largest;                 // the largest GPU of these
};

struct Outcome {
  std::string ticket;
  std::optional<Grant> grant;
  std::optional<Wait> wait;
  std::optional<Impossible> impossible;
};

// One outcome for each ticket, in the order of the queue.
std::vector<Outcome> plan(const PlanInput& input);

// The same decision, ticket by ticket, for who would rather not read the whole queue.
class Planner {
 public:
  // `input` must outlive this; its tickets are not looked at.
  explicit Planner(const PlanInput& input);
  Planner(Planner&&) noexcept;
  Planner& operator=(Planner&&) noexcept;
  ~Planner();

  enum class Explain : std::uint8_t { yes, no };

  // The outcome for the next ticket of the queue. The ticket must outlive this. Unexplained, a wait
  // says nothing but that it is one, which takes far less time.
  Outcome decide(const QueuedTicket& ticket, Explain explain = Explain::yes);

  // No GPU is left that any later ticket could have, whatever it asks for.
  bool is_exhausted() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

// Beside others, a lease must leave this much for contexts, which grow where nobody declared them.
constexpr Bytes kContextMargin = mib(256);

}  // namespace berth
