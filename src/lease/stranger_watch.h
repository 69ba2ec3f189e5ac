// Watches the processes without a lease that keep a waiting client from GPUs.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "base/unique_fd.h"
#include "lease/decision.h"

namespace berth {

// How often a client asks the driver about changes that wake no bell: load, health, memory.
constexpr std::chrono::seconds kDriverPollInterval(2);

class StrangerWatch {
 public:
  // Returns descriptors of the processes without a lease that keep the client from GPUs; each is
  // readable when its process ends. Strangers are watched by the first client that they block, and
  // by every client that relies on no other ticket. Some strangers cannot be watched: a process in
  // a container, or a process that has ended while the driver still shows its memory. For those
  // there is a driver_poll_interval().
  std::vector<UniqueFd> open_handles(const Decision& decision);
  // After open_handles(): decide again after this time; nullopt: the descriptors suffice.
  std::optional<std::chrono::milliseconds> driver_poll_interval() const {
    return driver_poll_interval_;
  }

 private:
  std::optional<std::chrono::milliseconds> driver_poll_interval_;
  std::set<std::int64_t> ended_strangers_;  // PIDs; ended between snapshot and watching
};

}  // namespace berth
