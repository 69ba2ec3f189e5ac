// Leaving from outside: tickets out of the queue, and leases given back while their shell lives.
//
// Each checks everything under the harbour's lock before it changes anything: if one of several is
// refused, all are left as they are. Makes no harbour where there is none. A user may end what is
// his own, root what is anybody's.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "harbour/record.h"

namespace berth {

// The tickets that left the queue; their processes end with ErrorKind::not_granted.
// ErrorKind::usage: there is no such ticket. ErrorKind::permission: it is another user's.
Result<std::vector<Record>> cancel_tickets(const std::vector<std::string>& ids);

// All of this user's. None is no error.
Result<std::vector<Record>> cancel_own_tickets();

struct NamedGpu {
  std::string uuid;
  std::string index;  // for people
};

// The leases that were given back. Only a shell's can be: a job's ends with the job, and is refused
// (ErrorKind::usage) with the processes that keep it. `gpus` mean every lease of this user's shells
// on one of them.
Result<std::vector<Record>> release_leases(const std::vector<std::string>& ids,
                                           const std::vector<NamedGpu>& gpus);

// Every lease of this user's shells. None is no error.
Result<std::vector<Record>> release_own_leases();

// The lease that BERTH_LEASE names (nothing is released if that has ended), else the only one of
// this user's shells. ErrorKind::usage if there are none or several.
Result<std::vector<Record>> release_current_lease();

}  // namespace berth
