// Who is connected: how many there may be, who gives way when it gets crowded, and whom to tell of
// news.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <set>

#include "base/poke.h"

namespace berth {

constexpr std::size_t kMostConnections = 256;
// Some are left for those who want to see a page, however many watch.
constexpr std::size_t kMostViewers = 240;

// Every thread may use it. A connection is named by its descriptor, from enter() to leave().
class Clients {
 public:
  using Clock = std::chrono::steady_clock;

  // False if there are too many. One that is only kept for a next request gives way.
  bool enter(int fd);
  // A request begins. False if the connection had to give way, or all is to end.
  bool begin(int fd);
  // It is answered, and the connection kept.
  void rest(int fd);
  // Before the descriptor is closed.
  void leave(int fd);

  // There is a new picture, or a slip was filled.
  void poke();
  // From now on all connections are over; waits until the last has left.
  void end();

 private:
  friend class Ear;

  struct Client {
    bool idle = true;
    bool served = false;
    Clock::time_point since = Clock::now();
    bool gives_way = false;
  };
  bool make_room();

  std::mutex mutex_;
  std::condition_variable left_;
  bool ends_ = false;
  std::map<int, Client> clients_;
  std::size_t giving_way_ = 0;  // of these
  std::size_t viewers_ = 0;
  std::set<const Poke*> ears_;
};

// Somebody who waits for news, as long as this lives.
class Ear {
 public:
  enum class Of { viewer, waiter };

  Ear(Clients& clients, Of who);
  Ear(const Ear&) = delete;
  Ear& operator=(const Ear&) = delete;
  ~Ear();

  // False if there are too many viewers, or no descriptors.
  explicit operator bool() const { return granted_; }
  const Poke& poke() const { return poke_; }

 private:
  Clients& clients_;
  Of who_;
  Poke poke_;
  bool granted_ = false;
};

}  // namespace berth
