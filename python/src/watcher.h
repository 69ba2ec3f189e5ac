// A background thread for the leases of a Python program: it samples what they use, keeps up their
// heartbeat, restores deleted files and writes the history, as `berth run` does for its job.
#pragma once

#include <memory>

#include "python/src/lease.h"

namespace berth::python {

// Watches the lease until it is released, or until the last pointer to it is gone. One thread
// serves all leases of the process. Restoring begins after a second, sampling after a second or (if
// a profile is to be learned) after 20 ms. Not in forks.
void watch_lease(const std::shared_ptr<PythonLease>& lease);

// The same thread writes the entry, within about a second, so that a program that leases a thousand
// times a second does not wait for the disk each time. Thread-safe.
void archive_later(const HarbourLocation& harbour, HistoryEntry entry);

// Called when the program exits: writes all pending entries, and the end of all leases that it
// holds.
void archive_all();

// Whether the thread is querying the driver, and perhaps starting a helper process for that.
bool is_watcher_querying_driver();

// Stop and restart the thread around a fork: Python warns about a fork of a process with threads.
void pause_watching();
void resume_watching();

}  // namespace berth::python
