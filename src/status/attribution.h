// Finds the lease that a process on a GPU belongs to. A compute process without a lease is a
// stranger.
//
// These functions use only the driver's snapshot, which has the ancestors and the environment of
// each process. They read no file, so they may be called under the harbour's lock.
#pragma once

#include <string>
#include <vector>

#include "devices/gpu.h"
#include "harbour/record.h"

namespace berth {

// A process on a GPU, and the lease that it runs under.
struct AttributedProcess {
  GpuProcess process;
  std::string lease;    // its id; empty: the process has no lease
  bool daemon = false;  // see is_driver_daemon()
  // A process that computes without a lease. Displays and the driver's daemons are not strangers: a
  // card that also drives a screen, or has an MPS server, must stay usable.
  bool is_stranger() const {
    return process.kind == ProcessKind::compute && lease.empty() && !daemon;
  }
};

// The id of the lease on `gpu`, among `leases`, under which `process` runs; empty if it has no
// lease. A process belongs to a lease if, in this order, it descends from the lease's process; its
// environment names the lease (only its own user and root can read that); or its user has a lease
// on this GPU. The last rule covers jobs whose parent has ended.
std::string find_lease_id(const GpuProcess& process, const Gpu& gpu,
                          const std::vector<Record>& leases);

// True if the process certainly runs under this lease, by descent or by its environment. Unlike
// find_lease_id(), does not guess by the user, who may have several leases.
bool runs_under(const GpuProcess& process, const Record& lease);

// True for a daemon of the driver that uses a little memory on a GPU and does not compute for a
// user: an MPS server or a monitoring daemon. A process can choose its name, so the name alone
// proves nothing. The process must also belong to root, or be an MPS server (which has the uid of
// its client) that root's MPS control daemon has started. And it must use little memory, since the
// memory of an MPS server may be that of its clients.
bool is_driver_daemon(const GpuProcess& process);

// The processes of the GPU, each with its lease among `leases`.
std::vector<AttributedProcess> attribute_processes(const Gpu& gpu,
                                                   const std::vector<Record>& leases);

// True if the lease takes up this GPU. A lease whose record cannot be read counts for all GPUs.
bool holds_gpu(const Record& lease, const Gpu& gpu);

}  // namespace berth
