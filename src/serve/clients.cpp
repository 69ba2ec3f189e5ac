// The list of connections; see clients.h.
#include "serve/clients.h"

#include <netinet/in.h>
#include <poll.h>
#include <string_view>
#include <tuple>
#include <utility>

namespace berth {
namespace {

bool has_input(int fd) {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, 0) != 0;
}

}  // namespace

bool Clients::enter(int fd, std::string address) {
  const MutexLock lock(mutex_);
  if (ends_) return false;
  if (clients_.size() - giving_way_ >= kMostConnections && !make_room()) return false;
  Client client;
  client.address = count_ == Count::by_address ? std::move(address) : std::to_string(fd);
  clients_.emplace(fd, std::move(client));
  return true;
}

Clients::Place Clients::find_victim(const Rank& rank_of) {
  std::map<std::string_view, std::size_t> counts;
  for (const auto& [fd, client] : clients_) {
    if (!client.gives_way) ++counts[client.address];
  }
  auto victim = clients_.end();
  std::tuple<std::size_t, int, Clock::time_point> lowest;
  for (auto one = clients_.begin(); one != clients_.end(); ++one) {
    const Client& client = one->second;
    const std::size_t count = counts[client.address];
    const auto rank = client.gives_way ? std::nullopt : rank_of(one->first, client, count);
    if (!rank) continue;
    const std::tuple place(SIZE_MAX - count, *rank, client.since);
    if (victim != clients_.end() && place >= lowest) continue;
    victim = one;
    lowest = place;
  }
  return victim;
}

void Clients::drop(Place one) {
  one->second.gives_way = true;
  ++giving_way_;
  ::shutdown(one->first, SHUT_RDWR);
}

// First those that only might be used again, or were opened and left alone; then requests that are
// not complete; then answers that take long. A request that has come but was not seen yet by its
// thread stays in the kernel until begin() was called, so that has_input() cannot overlook it.
bool Clients::make_room() {
  constexpr std::chrono::seconds kOnItsWay(1);
  constexpr std::chrono::seconds kSlowAnswer(5);
  const auto now = Clock::now();
  const auto victim = find_victim([&](int fd, const Client& client, std::size_t count) {
    const auto age = now - client.since;
    std::optional<int> rank;
    switch (client.state) {
      case State::idle:
        rank = (client.served || age >= kOnItsWay) && !has_input(fd) ? 0 : 1;
        break;
      case State::reading:
        rank = 1;
        break;
      case State::answering:
        // With more than half of all connections, an address loses answers of any age.
        if (age >= kSlowAnswer || count > kMostConnections / 2) rank = 2;
        break;
      case State::viewing:
        break;
    }
    return rank;
  });
  if (victim == clients_.end()) return false;
  drop(victim);
  return true;
}

bool Clients::begin(int fd) {
  const MutexLock lock(mutex_);
  Client& client = clients_.at(fd);
  if (ends_ || client.gives_way) return false;
  client.state = State::reading;
  client.since = Clock::now();
  return true;
}

void Clients::complete(int fd) {
  const MutexLock lock(mutex_);
  Client& client = clients_.at(fd);
  client.state = State::answering;
  client.since = Clock::now();
}

void Clients::rest(int fd) {
  const MutexLock lock(mutex_);
  Client& client = clients_.at(fd);
  client.state = State::idle;
  client.served = true;
  client.since = Clock::now();
}

// With all places of viewers taken, an address that has more viewers than this one gives one up.
bool Clients::start_viewing(int fd) {
  Client& client = clients_.at(fd);
  if (viewers_ >= kMostViewers) {
    std::map<std::string_view, int> viewers;  // by address
    for (const auto& [other, one] : clients_) {
      if (one.state == State::viewing && !one.gives_way) ++viewers[one.address];
    }
    const auto victim = find_victim([&](int, const Client& one, std::size_t) {
      const bool more = viewers[one.address] > viewers[client.address] + 1;
      return one.state == State::viewing && more ? std::optional(-viewers[one.address])
                                                 : std::nullopt;
    });
    if (victim == clients_.end()) return false;
    drop(victim);
  }
  client.state = State::viewing;
  client.since = Clock::now();
  return true;
}

void Clients::leave(int fd) {
  const MutexLock lock(mutex_);
  const auto found = clients_.find(fd);
  if (found->second.gives_way) --giving_way_;
  clients_.erase(found);
  left_.notify_all();
}

void Clients::poke() {
  const MutexLock lock(mutex_);
  for (const EventFd* const one : ears_) (*one)();
}

void Clients::end() {
  const MutexLock lock(mutex_);
  ends_ = true;
  for (const auto& [fd, client] : clients_) ::shutdown(fd, SHUT_RDWR);
  while (!clients_.empty()) left_.wait(mutex_);
}

Subscription::Subscription(Clients& clients, Of who, int fd) : clients_(clients), who_(who) {
  if (poke_.fd() < 0) return;
  const MutexLock lock(clients_.mutex_);
  if (who_ == Of::viewer && !clients_.start_viewing(fd)) return;
  if (who_ == Of::viewer) ++clients_.viewers_;
  clients_.ears_.insert(&poke_);
  granted_ = true;
}

Subscription::~Subscription() {
  if (!granted_) return;
  const MutexLock lock(clients_.mutex_);
  if (who_ == Of::viewer) --clients_.viewers_;
  clients_.ears_.erase(&poke_);
}

std::string client_address(const sockaddr_storage& peer) {
  if (peer.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(peer);
    return {reinterpret_cast<const char*>(&v4.sin_addr), sizeof v4.sin_addr};
  }
  if (peer.ss_family != AF_INET6) return "";
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
  const char* const bytes = reinterpret_cast<const char*>(v6.s6_addr);
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return {bytes + 12, 4};  // a socket for both
  return {bytes, IN6_IS_ADDR_LOOPBACK(&v6) ? 16U : 8U};
}

}  // namespace berth
