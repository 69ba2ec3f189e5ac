// From what a job used to what the next of its type reserves.
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

// How a job ended, as far as learning cares.
enum class ExitClass : std::uint8_t { success, failure, out_of_memory };

// A request of a job whose needs are known from earlier runs, or are to be.
struct ProfileOptions {
  std::string type;
  bool use_memory = false;  // reserve what was learned (--mem auto)
  bool use_time = false;    // expect it to run as long as it did (where --time was not given)
  // Reserve at least this much, whatever is known: the last attempt ran out of memory.
  std::optional<Bytes> min_memory{};
  bool exclusive = false;  // have GPUs of its own, whatever is known: the same, for the last time
};

// Fills in what this user's own runs have shown of the type by now: the memory, the run time where
// the user did not say it, and whether this run is to be measured. Where that is another than
// before, the result is true.
bool apply_profile(Record& record, const ProfileOptions& options, const std::vector<Gpu>& gpus,
                   const HarbourLocation& harbour);

// What a job that ran out of memory with so much is given next: half as much again.
Bytes memory_after_oom(Bytes previous);

// What a run has shown. Only success teaches, and running out of memory.
struct RunOutcome {
  ExitClass exit_class = ExitClass::failure;
  std::chrono::milliseconds lasted{};
};
Result<void> record_run(const HarbourLocation& harbour, const Record& lease, const Usage& usage,
                        const RunOutcome& outcome);

// Wakes the tickets of this user that wait for the profile of a type: they look again at what is
// known. Those who are not reached (this process may be killed) are woken by the next of them.
void wake_profile_waiters(Harbour& harbour, uid_t uid, const std::string& type);
// The next of them behind a ticket of that type.
void wake_next_profile_waiter(Harbour& harbour, const Record& ticket, const TicketName& name);

// Did it run out of memory? By what the driver showed and by its last words, if it failed.
ExitClass classify_exit(bool succeeded, const Record& lease, const Usage& usage,
                        const std::string& output_tail);

// Do these words of a program say that a GPU's memory did not suffice?
bool mentions_out_of_memory(std::string_view output);

// What to advise, where a framework took the whole card; else nothing.
std::string preallocation_hint(const std::string& framework);

}  // namespace berth
