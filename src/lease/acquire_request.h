// A request for GPUs as acquire() takes it, and the GPUs that it may be granted.
//
// The text of flags and keywords becomes RequestOptions (request_options.h), those an
// AcquireRequest, and that has the Request (schedule/request.h) that other clients can read.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "base/result.h"
#include "devices/gpu.h"
#include "harbour/location.h"
#include "harbour/record.h"
#include "profile/learning.h"
#include "schedule/request.h"

namespace berth {

// How the caller writes a request: messages name the argument that the caller can change.
enum class ArgumentStyle : std::uint8_t { flags, keywords };

// The argument `flag` ("--max-util") as the caller writes it: unchanged for the command line,
// "util=" for Python.
std::string argument_name(std::string_view flag, ArgumentStyle style);

// A request for GPUs, and the client that makes it.
struct AcquireRequest {
  Request gpu_request;
  std::string gpus;             // --gpu as the user wrote it; empty: any GPU
  bool wants_all_gpus = false;  // gpu_request.count follows from `gpus` and this host
  std::string label;
  std::string command;
  std::string preferred_id{};  // of the ticket and the lease; empty, or if it is taken: a new id
  pid_t holder_pid = 0;        // the process that the lease is for; 0: this process
  HolderKind holder = HolderKind::job;
  // Set: the learned needs of this job type change the request.
  std::optional<ProfileOptions> profile_options{};
  // The id of a multi-host ticket whose place in the queue the lease takes; see
  // cluster/remote/multi_host_ticket.h.
  std::string replaced_ticket{};
  // Of a job of `berth run --host`: see Record.
  std::string job_id{};
  std::string job_host{};
  // Of the memory of each GPU, what the process uses already, without a lease. The ticket asks for
  // the rest; the lease reserves all.
  Bytes memory_in_use{};
  bool no_wait = false;
  std::optional<std::chrono::nanoseconds> timeout;
  ArgumentStyle argument_style = ArgumentStyle::flags;

  HarbourLocation harbour = harbour_location();

  // From the environment of the caller.
  std::optional<std::string> visible_devices{};  // CUDA_VISIBLE_DEVICES: restricts the choice
  std::string parent_lease{};  // BERTH_LEASE: the request is made inside this lease

  // Returns the UUIDs of the GPUs that the caller accepts in their current state. Called before
  // each decision, and every few seconds while it returns too few. Empty: all GPUs are accepted.
  std::function<std::vector<std::string>()> selector{};
};

// The least memory that a request reserves. A CUDA context alone takes more.
constexpr Bytes kMinReservation = mib(64);

// What a process that needs `needed`, and uses `in_use` of it already, must ask for.
Bytes subtract_memory_in_use(Bytes needed, Bytes in_use);

// What a request inside a lease can do for other GPUs than those of the lease. Both variables are
// from the lease, and CUDA_VISIBLE_DEVICES alone would still restrict the request to it.
constexpr std::string_view kOutsideLeaseRemedy =
    "for GPUs outside of the lease: unset BERTH_LEASE CUDA_VISIBLE_DEVICES";

// The record of a client that is not granted anything yet.
Record make_record(const AcquireRequest& request, std::string id);

// Sets gpu_request.uuids to the GPUs that --gpu names and CUDA_VISIBLE_DEVICES allows. Leaves MIG
// instances out if the request limits the load, since the driver does not report their load.
// ErrorKind::usage: --gpu is malformed. ErrorKind::impossible: no GPU is left.
Result<void> restrict_to_allowed_gpus(Request& gpu_request, const AcquireRequest& request,
                                      const std::vector<Gpu>& gpus);

// Removes from gpu_request.uuids the GPUs that are not among `uuids`.
void intersect_allowed_gpus(Request& gpu_request, std::vector<std::string> uuids);

}  // namespace berth
