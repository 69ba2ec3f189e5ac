// Which lease a process on a GPU belongs to. A process that belongs to none is a stranger.
//
// Everything here is decided from the driver's snapshot, which has each process's ancestors and
// environment: no file is read, so it may be called under the harbour's lock.
#pragma once

#include <string>
#include <vector>

#include "devices/gpu.h"
#include "harbour/record.h"

namespace berth {

// The id of the lease on `gpu`, among `leases`, under which `process` runs; empty if there is none.
// In this order: it descends from the lease's process; its environment names the lease (seen only
// by its own user and by root); its user has a lease on this GPU. The last covers jobs whose parent
// is gone.
std::string find_lease_id(const GpuProcess& process, const Gpu& gpu,
                          const std::vector<Record>& leases);

// Does it certainly run under this lease, beside others that may be there: by descent, or by its
// environment?
bool runs_under(const GpuProcess& process, const Record& lease);

// Is it a daemon of the driver, which uses a little memory on a GPU and does not compute for a
// user: an MPS server or a monitoring daemon? A process can choose its name, so the name alone
// proves nothing. It must also be root's, or an MPS server (which has its client's uid) that root's
// MPS control daemon has started; and use little memory, since the memory of an MPS server may be
// its clients'.
bool is_driver_daemon(const GpuProcess& process);

// Does the lease take up this GPU? One that cannot be read may hold any.
bool holds_gpu(const Record& lease, const Gpu& gpu);

}  // namespace berth
