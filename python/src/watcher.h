// What goes on beside a Python program that holds leases: those that somebody deletes are put back,
// and the history is written, as `berth run` does both.
#pragma once

#include <memory>

#include "python/src/lease.h"

namespace berth::python {

// From a second after now until it is released or nobody has it any more, by one thread for all
// leases of the process, which sleeps. Not in forks.
void watch_lease(const std::shared_ptr<PythonLease>& lease);

// Written within about a second, by the same thread: who leases a thousand times a second does not
// wait for the disk as often. Any thread may call it.
void archive_later(const HarbourLocation& harbour, HistoryEntry entry);

// At the end of the program: what is yet to be written, and the end of what it still holds.
void archive_all();

// The driver is being asked at this moment, and a helper perhaps started for that.
bool is_watcher_querying_driver();

// For the time of a fork, of which Python warns where there are threads.
void pause_watching();
void resume_watching();

}  // namespace berth::python
