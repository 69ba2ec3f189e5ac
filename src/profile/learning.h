// Learning: records what a run used, and applies it to the next request of the same job type.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "devices/gpu.h"
#include "harbour/harbour.h"
#include "harbour/record.h"
#include "profile/profile_store.h"
#include "profile/usage.h"

namespace berth {

// How a job ended, as far as it matters for learning.
enum class ExitClass : std::uint8_t { success, failure, out_of_memory };

// How a request uses the profile of its job type.
struct ProfileOptions {
  std::string type;
  bool use_memory = false;  // reserve the learned memory (--mem auto)
  bool use_time = false;    // use the learned run time (--time was not given)
  // Reserve at least this much, whatever the profile says: the last attempt ran out of memory.
  std::optional<Bytes> min_memory{};
  // Request exclusive GPUs, whatever the profile says: the last retry after running out of memory.
  bool exclusive = false;
};

// Sets the memory and run time of the request from this user's profile of the type, and decides
// whether this run is a profiling run. Call it again while the request waits, since the profile may
// change. Returns whether the record changed.
bool apply_profile(Record& record, const ProfileOptions& options, const std::vector<Gpu>& gpus,
                   const HarbourLocation& harbour);

// The memory for the next attempt after running out of memory with `previous`: half as much again.
Bytes memory_after_oom(Bytes previous);

struct RunOutcome {
  ExitClass exit_class = ExitClass::failure;
  std::chrono::milliseconds lasted{};
};
// Adds a run to the profile of the lease's job type. Berth learns only from runs that succeeded or
// ran out of memory; other failures are only counted.
Result<void> record_run(const HarbourLocation& harbour, const Record& lease, const Usage& usage,
                        const RunOutcome& outcome);

// Rings the tickets of this user that wait for the profile of a type, so that they read it again.
// If this process is killed half-way, each rung ticket rings the next one (see below). Takes the
// harbour's lock.
void wake_profile_waiters(Harbour& harbour, uid_t uid, const std::string& type);
// Rings the next such ticket behind `ticket`.
void wake_next_profile_waiter(Harbour& harbour, const Record& ticket, const TicketName& name);

// Did the job fail, and for want of memory? Uses the driver's figures and the job's last output.
ExitClass classify_exit(bool succeeded, const Record& lease, const Usage& usage,
                        const std::string& output_tail);

// Does this output of a program say that it ran out of GPU memory?
bool mentions_out_of_memory(std::string_view output);

// Advice for a framework that allocates most of a card at its start; empty for others.
std::string preallocation_hint(const std::string& framework);

}  // namespace berth
