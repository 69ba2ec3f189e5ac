// The table of open connections: limits their number, evicts some, and wakes waiting threads.
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
// Viewers (clients of the event stream) stay connected for hours. The other connections are
// reserved for short requests, such as loading the page.
constexpr std::size_t kMaxViewers = 240;

// Thread-safe. A connection is identified by its descriptor, from add() to remove(); the table does
// not own the descriptor.
//
// When the table is full, add() evicts a connection that does little: an idle one, one whose
// request is incomplete, or one whose response takes long. The victim is the oldest such connection
// of the client address that has the most connections. So a client can lock the others out neither
// by many connections nor by slow ones. Eviction shuts the socket down; the thread of that
// connection then ends and calls remove().
class ConnectionTable {
 public:
  using Clock = std::chrono::steady_clock;
  // Behind a proxy all clients have the proxy's address, so each connection counts as a client.
  enum class GroupBy : std::uint8_t { address, connection };

  explicit ConnectionTable(GroupBy group_by) : group_by_(group_by) {}

  // `address` identifies the client: see client_address(). False if the table is full and no
  // connection can be evicted, or after close_all().
  bool add(int fd, std::string address);
  // The first bytes of a request have arrived. False if the connection was evicted, or after
  // close_all(): the caller must then close it.
  bool begin_request(int fd);
  // The whole request was read.
  void begin_response(int fd);
  // The response was sent, and the connection stays open for another request.
  void set_idle(int fd);
  // Must be called before the descriptor is closed.
  void remove(int fd);

  // Notifies every Subscription: there is a new snapshot, or a pending response is ready.
  void wake_subscriptions();
  // Shuts down all connections, refuses new ones, and waits until all are removed.
  void close_all();

 private:
  friend class Subscription;

  enum class State : std::uint8_t { idle, reading, responding, viewing };
  struct ConnectionEntry {
    std::string address;
    State state = State::idle;
    bool served = false;
    Clock::time_point since = Clock::now();  // start of this state
    bool evicted = false;
  };
  using Iterator = std::map<int, ConnectionEntry>::iterator;

  bool make_room() REQUIRES(mutex_);
  // The order of eviction, lowest first; nullopt: this connection must not be evicted. `count` is
  // the number of connections of its address.
  using Rank =
      std::function<std::optional<int>(int fd, const ConnectionEntry& entry, std::size_t count)>;
  // The connection to evict: by most connections of its address, then lowest rank, then oldest.
  // end() if no connection has a rank.
  Iterator find_victim(const Rank& rank_of) REQUIRES(mutex_);
  void evict(Iterator one) REQUIRES(mutex_);
  bool start_viewing(int fd) REQUIRES(mutex_);

  const GroupBy group_by_;
  Mutex mutex_;
  Condition connection_removed_;
  bool closing_ GUARDED_BY(mutex_) = false;
  std::map<int, ConnectionEntry> connections_ GUARDED_BY(mutex_);
  std::size_t evicted_count_ GUARDED_BY(mutex_) = 0;  // evicted, but not yet removed
  std::size_t viewers_ GUARDED_BY(mutex_) = 0;
  std::set<const EventFd*> subscribers_ GUARDED_BY(mutex_);
};

// The bytes that identify a client in ConnectionTable: its IPv4 address, or the first half (the /64
// network) of its IPv6 address, because one client may use every address of its network.
std::string client_address(const sockaddr_storage& peer);

// Registers a thread for ConnectionTable::wake_subscriptions() during the lifetime of this object.
// A viewer follows the event stream; a waiter waits for one pending response. Used by one thread;
// the table must outlive it.
class Subscription {
 public:
  enum class Kind { viewer, waiter };

  Subscription(ConnectionTable& connections, Kind kind, int fd);
  Subscription(const Subscription&) = delete;
  Subscription& operator=(const Subscription&) = delete;
  ~Subscription();

  // False if there are too many viewers, or if no descriptor was left for the event.
  explicit operator bool() const { return accepted_; }
  const EventFd& wake_event() const { return wake_event_; }

 private:
  ConnectionTable& connections_;
  Kind kind_;
  EventFd wake_event_;
  bool accepted_ = false;
};

}  // namespace berth::serve
