// Who is connected: how many there may be, who gives way when it gets crowded, and whom to tell of
// news.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <sys/socket.h>

#include "base/event_fd.h"
#include "base/mutex.h"

namespace berth::serve {

constexpr std::size_t kMaxConnections = 256;
// Some are left for those who want to see a page, however many watch.
constexpr std::size_t kMaxViewers = 240;

// Every thread may use it. A connection is named by its descriptor, from add() to remove().
//
// When there are too many, a connection that does not use its place is closed: one that is kept for
// a next request, one whose request is not complete, or one that takes long to be answered. The
// client address with the most connections loses one of its own, the oldest. So neither many
// connections of one client nor many slow ones keep the others out.
class ConnectionTable {
 public:
  using Clock = std::chrono::steady_clock;
  // Behind a proxy all clients have the proxy's address: then each connection counts as a client.
  enum class GroupBy : std::uint8_t { address, connection };

  explicit ConnectionTable(GroupBy group_by) : group_by_(group_by) {}

  // `address`: of the client, in any form that is the same for all its connections. False if there
  // are too many, and none gives way.
  bool add(int fd, std::string address);
  // A request begins. False if the connection had to give way, or all is to end.
  bool begin_request(int fd);
  // It was read to its end.
  void begin_response(int fd);
  // It is answered, and the connection kept.
  void set_idle(int fd);
  // Before the descriptor is closed.
  void remove(int fd);

  // There is a new picture, or a slip was filled.
  void wake_subscriptions();
  // From now on all connections are over; waits until the last has left.
  void close_all();

 private:
  friend class Subscription;

  enum class State : std::uint8_t { idle, reading, responding, viewing };
  struct ConnectionEntry {
    std::string address;
    State state = State::idle;
    bool served = false;
    Clock::time_point since = Clock::now();  // in this state
    bool evicted = false;
  };
  using Iterator = std::map<int, ConnectionEntry>::iterator;

  bool make_room() REQUIRES(mutex_);
  // In which order connections give way, the lowest first; nothing: this one does not. `count`: how
  // many its address has.
  using Rank =
      std::function<std::optional<int>(int fd, const ConnectionEntry& entry, std::size_t count)>;
  // Of the address with the most connections that has any, the lowest and oldest; end() if none.
  Iterator find_victim(const Rank& rank_of) REQUIRES(mutex_);
  void evict(Iterator one) REQUIRES(mutex_);
  bool start_viewing(int fd) REQUIRES(mutex_);

  const GroupBy group_by_;
  Mutex mutex_;
  Condition connection_removed_;
  bool closing_ GUARDED_BY(mutex_) = false;
  std::map<int, ConnectionEntry> connections_ GUARDED_BY(mutex_);
  std::size_t evicted_count_ GUARDED_BY(mutex_) = 0;  // of these
  std::size_t viewers_ GUARDED_BY(mutex_) = 0;
  std::set<const EventFd*> subscribers_ GUARDED_BY(mutex_);
};

// The address at the other end of a connection, as ConnectionTable tells clients apart: an IPv4
// address, or the first half of an IPv6 address, since a client may have all of the other half.
std::string client_address(const sockaddr_storage& peer);

// Somebody who waits for news, as long as this lives.
class Subscription {
 public:
  enum class Kind { viewer, waiter };

  Subscription(ConnectionTable& connections, Kind kind, int fd);
  Subscription(const Subscription&) = delete;
  Subscription& operator=(const Subscription&) = delete;
  ~Subscription();

  // False if there are too many viewers, or no descriptors.
  explicit operator bool() const { return accepted_; }
  const EventFd& wake_event() const { return wake_event_; }

 private:
  ConnectionTable& connections_;
  Kind kind_;
  EventFd wake_event_;
  bool accepted_ = false;
};

}  // namespace berth::serve
