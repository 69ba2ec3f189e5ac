// Polls the hosts in its own thread, so that a slow driver does not block the keys.
#pragma once

#include <chrono>
#include <memory>
#include <thread>

#include "harbour/location.h"
#include "top/rows.h"

namespace berth::top {

// Used by one thread.
class StatusThread {
 public:
  // Polls every `period`, and when the harbour changes. From here on the process has threads, so
  // the driver's helper must be started by exec, not by fork alone: call set_helper_program()
  // before.
  StatusThread(HarbourLocation where, std::chrono::milliseconds period);
  StatusThread(const StatusThread&) = delete;
  StatusThread& operator=(const StatusThread&) = delete;
  // Stops the thread, or leaves it behind if it does not end at once: see stop().
  ~StatusThread();

  // Readable when there is a new snapshot, until latest() is called.
  int fd() const;
  std::shared_ptr<const TopSnapshot> latest();

  // Stops the thread. False if it does not end in time, because Redis or the harbour's lock blocks
  // it: it is then detached. It no longer uses this object, but it still uses globals, so the
  // process must end by _exit(), not by exit().
  bool stop(std::chrono::milliseconds timeout);

 private:
  struct Shared;
  static void run(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace berth::top
