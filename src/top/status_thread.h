// Looks at the hosts in a thread of its own, so that a driver that takes long keeps no key waiting.
#pragma once

#include <chrono>
#include <memory>
#include <thread>

#include "harbour/location.h"
#include "top/rows.h"

namespace berth::top {

class StatusThread {
 public:
  // Looks every `period`, and when something changes. The process has threads from here on, and so
  // must start the driver's helper by its program: see set_helper_program().
  StatusThread(HarbourLocation where, std::chrono::milliseconds period);
  StatusThread(const StatusThread&) = delete;
  StatusThread& operator=(const StatusThread&) = delete;
  ~StatusThread();

  // Readable when there is a new picture; reading it with latest() ends that.
  int fd() const;
  std::shared_ptr<const TopSnapshot> latest();

  // Ends the thread; false if it does not end by then (Redis or the lock keeps it). It then uses
  // nothing of this any more, but the process must not end by exit(), under its feet.
  bool stop(std::chrono::milliseconds timeout);

 private:
  struct Shared;
  static void run(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace berth::top
