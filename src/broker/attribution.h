// Which lease a process on a GPU belongs to, if any: who belongs to none is a stranger.
#pragma once

#include <string>
#include <vector>

#include "devices/gpu.h"
#include "harbour/record.h"

namespace berth {

// The id of the lease on `gpu`, among `leases`, under which `process` runs; empty if there is none.
// In this order: it descends from the lease's process; its environment names the lease (seen only
// by its own user and by root); its user has a lease on this GPU. The last covers jobs whose parent
// is gone. Reads /proc.
std::string lease_of(const GpuProcess& process, const Gpu& gpu, const std::vector<Record>& leases);

// Does it certainly run under this lease, beside others that may be there: by descent, or by its
// environment? Reads /proc.
bool runs_under(const GpuProcess& process, const Record& lease);

// Does the lease take up this GPU? One that cannot be read may hold any.
bool holds(const Record& lease, const Gpu& gpu);

}  // namespace berth
