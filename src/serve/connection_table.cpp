// Adds, evicts and removes connections; see connection_table.h.
#include "serve/connection_table.h"

#include <netinet/in.h>
#include <poll.h>
#include <string_view>
#include <tuple>
#include <utility>

namespace berth::serve {
namespace {

bool has_input(int fd) {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, 0) != 0;
}

}  // namespace

bool ConnectionTable::add(int fd, std::string address) {
  const MutexLock lock(mutex_);
  if (closing_) return false;
  if (connections_.size() - evicted_count_ >= kMaxConnections && !make_room()) return false;
  ConnectionEntry entry;
  entry.address = group_by_ == GroupBy::address ? std::move(address) : std::to_string(fd);
  connections_.emplace(fd, std::move(entry));
  return true;
}

ConnectionTable::Iterator ConnectionTable::find_victim(const Rank& rank_of) {
  std::map<std::string_view, std::size_t> counts;
  for (const auto& [fd, entry] : connections_) {
    if (!entry.evicted) ++counts[entry.address];
  }
  auto victim = connections_.end();
  std::tuple<std::size_t, int, Clock::time_point> lowest;
  for (auto one = connections_.begin(); one != connections_.end(); ++one) {
    const ConnectionEntry& entry = one->second;
    const std::size_t count = counts[entry.address];
    const auto rank = entry.evicted ? std::nullopt : rank_of(one->first, entry, count);
    if (!rank) continue;
    const std::tuple place(SIZE_MAX - count, *rank, entry.since);
    if (victim != connections_.end() && place >= lowest) continue;
    victim = one;
    lowest = place;
  }
  return victim;
}

void ConnectionTable::evict(Iterator one) {
  one->second.evicted = true;
  ++evicted_count_;
  ::shutdown(one->first, SHUT_RDWR);
}

// The order of eviction: first idle connections (after a response, or a second after they were
// opened), then incomplete requests, then slow responses. A connection whose request has arrived,
// but whose thread has not run yet, is not idle. has_input() detects it reliably, because the
// thread reads from the kernel only after begin_request().
bool ConnectionTable::make_room() {
  constexpr std::chrono::seconds kRequestGrace(1);
  constexpr std::chrono::seconds kSlowResponse(5);
  const auto now = Clock::now();
  const auto victim = find_victim([&](int fd, const ConnectionEntry& entry, std::size_t count) {
    const auto age = now - entry.since;
    std::optional<int> rank;
    switch (entry.state) {
      case State::idle:
        rank = (entry.served || age >= kRequestGrace) && !has_input(fd) ? 0 : 1;
        break;
      case State::reading:
        rank = 1;
        break;
      case State::responding:
        // An address with more than half of all connections can lose responses of any age.
        if (age >= kSlowResponse || count > kMaxConnections / 2) rank = 2;
        break;
      case State::viewing:
        break;
    }
    return rank;
  });
  if (victim == connections_.end()) return false;
  evict(victim);
  return true;
}

bool ConnectionTable::begin_request(int fd) {
  const MutexLock lock(mutex_);
  ConnectionEntry& entry = connections_.at(fd);
  if (closing_ || entry.evicted) return false;
  entry.state = State::reading;
  entry.since = Clock::now();
  return true;
}

void ConnectionTable::begin_response(int fd) {
  const MutexLock lock(mutex_);
  ConnectionEntry& entry = connections_.at(fd);
  entry.state = State::responding;
  entry.since = Clock::now();
}

void ConnectionTable::set_idle(int fd) {
  const MutexLock lock(mutex_);
  ConnectionEntry& entry = connections_.at(fd);
  entry.state = State::idle;
  entry.served = true;
  entry.since = Clock::now();
}

// If there are too many viewers, evicts one of the address with the most connections among those
// that would still have at least as many viewers as this address. False if there is no such
// address.
bool ConnectionTable::start_viewing(int fd) {
  ConnectionEntry& entry = connections_.at(fd);
  if (viewers_ >= kMaxViewers) {
    std::map<std::string_view, int> viewers;  // by address
    for (const auto& [other, one] : connections_) {
      if (one.state == State::viewing && !one.evicted) ++viewers[one.address];
    }
    const auto victim = find_victim([&](int, const ConnectionEntry& one, std::size_t) {
      const bool more = viewers[one.address] > viewers[entry.address] + 1;
      return one.state == State::viewing && more ? std::optional(-viewers[one.address])
                                                 : std::nullopt;
    });
    if (victim == connections_.end()) return false;
    evict(victim);
  }
  entry.state = State::viewing;
  entry.since = Clock::now();
  return true;
}

void ConnectionTable::remove(int fd) {
  const MutexLock lock(mutex_);
  const auto found = connections_.find(fd);
  if (found->second.evicted) --evicted_count_;
  connections_.erase(found);
  connection_removed_.notify_all();
}

void ConnectionTable::wake_subscriptions() {
  const MutexLock lock(mutex_);
  for (const EventFd* const one : subscribers_) one->notify();
}

void ConnectionTable::close_all() {
  const MutexLock lock(mutex_);
  closing_ = true;
  for (const auto& [fd, entry] : connections_) ::shutdown(fd, SHUT_RDWR);
  while (!connections_.empty()) connection_removed_.wait(mutex_);
}

Subscription::Subscription(ConnectionTable& connections, Kind kind, int fd)
    : connections_(connections), kind_(kind) {
  if (wake_event_.fd() < 0) return;
  const MutexLock lock(connections_.mutex_);
  if (kind_ == Kind::viewer && !connections_.start_viewing(fd)) return;
  if (kind_ == Kind::viewer) ++connections_.viewers_;
  connections_.subscribers_.insert(&wake_event_);
  accepted_ = true;
}

Subscription::~Subscription() {
  if (!accepted_) return;
  const MutexLock lock(connections_.mutex_);
  if (kind_ == Kind::viewer) --connections_.viewers_;
  connections_.subscribers_.erase(&wake_event_);
}

std::string client_address(const sockaddr_storage& peer) {
  if (peer.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(peer);
    return {reinterpret_cast<const char*>(&v4.sin_addr), sizeof v4.sin_addr};
  }
  if (peer.ss_family != AF_INET6) return "";
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
  const char* const bytes = reinterpret_cast<const char*>(v6.s6_addr);
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return {bytes + 12, 4};  // an IPv4 client of a dual-stack socket
  return {bytes, IN6_IS_ADDR_LOOPBACK(&v6) ? 16U : 8U};
}

}  // namespace berth::serve
