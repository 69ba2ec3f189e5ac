// Looks at the hosts in a thread of its own, so that a driver that takes long keeps no key waiting.
#pragma once

#include <chrono>
#include <memory>
#include <thread>

#include "harbour/location.h"
#include "top/rows.h"

namespace berth::top {

class Watcher {
 public:
  // Looks every `period`, and when something changes. The process has threads from here on, and so
  // must start the driver's helper by its program: see set_helper_program().
  Watcher(HarbourLocation where, std::chrono::milliseconds period);
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  ~Watcher();

  // Readable when there is a new picture; reading it with news() ends that.
  int fd() const;
  std::shared_ptr<const TopSnapshot> news();

  // Ends the thread; false if it does not end by then (Redis or the lock keeps it). It then uses
  // nothing of this any more, but the process must not end by exit(), under its feet.
  bool end(std::chrono::milliseconds patience);

 private:
  struct Shared;
  static void work(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace berth::top
