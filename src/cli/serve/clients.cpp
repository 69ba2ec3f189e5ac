// The list of connections; see clients.h.
#include "cli/serve/clients.h"

#include <poll.h>
#include <sys/socket.h>

namespace berth {
namespace {

bool has_input(int fd) {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, 0) != 0;
}

}  // namespace

bool Clients::enter(int fd) {
  const std::lock_guard lock(mutex_);
  if (ends_) return false;
  if (clients_.size() - giving_way_ >= kMostConnections && !make_room()) return false;
  clients_.emplace(fd, Client{});
  return true;
}

// Of those that only might be used again, or were opened and left alone, the one that was not used
// for longest. A request that has come but was not seen yet by its thread stays in the kernel until
// begin() was called, so that it cannot be overlooked here.
bool Clients::make_room() {
  constexpr std::chrono::seconds kOnItsWay(1);
  const auto now = Clock::now();
  auto oldest = clients_.end();
  for (auto one = clients_.begin(); one != clients_.end(); ++one) {
    const Client& client = one->second;
    if (!client.idle || client.gives_way) continue;
    if (!client.served && now - client.since < kOnItsWay) continue;
    if (oldest != clients_.end() && oldest->second.since <= client.since) continue;
    if (!has_input(one->first)) oldest = one;
  }
  if (oldest == clients_.end()) return false;
  oldest->second.gives_way = true;
  ++giving_way_;
  ::shutdown(oldest->first, SHUT_RDWR);
  return true;
}

bool Clients::begin(int fd) {
  const std::lock_guard lock(mutex_);
  Client& client = clients_.at(fd);
  if (ends_ || client.gives_way) return false;
  client.idle = false;
  return true;
}

void Clients::rest(int fd) {
  const std::lock_guard lock(mutex_);
  Client& client = clients_.at(fd);
  client.idle = true;
  client.served = true;
  client.since = Clock::now();
}

void Clients::leave(int fd) {
  const std::lock_guard lock(mutex_);
  const auto found = clients_.find(fd);
  if (found->second.gives_way) --giving_way_;
  clients_.erase(found);
  left_.notify_all();
}

void Clients::poke() {
  const std::lock_guard lock(mutex_);
  for (const Poke* const one : ears_) (*one)();
}

void Clients::end() {
  std::unique_lock lock(mutex_);
  ends_ = true;
  for (const auto& [fd, client] : clients_) ::shutdown(fd, SHUT_RDWR);
  left_.wait(lock, [this] { return clients_.empty(); });
}

Ear::Ear(Clients& clients, Of who) : clients_(clients), who_(who) {
  if (poke_.fd() < 0) return;
  const std::lock_guard lock(clients_.mutex_);
  if (who_ == Of::viewer && clients_.viewers_ >= kMostViewers) return;
  if (who_ == Of::viewer) ++clients_.viewers_;
  clients_.ears_.insert(&poke_);
  granted_ = true;
}

Ear::~Ear() {
  if (!granted_) return;
  const std::lock_guard lock(clients_.mutex_);
  if (who_ == Of::viewer) --clients_.viewers_;
  clients_.ears_.erase(&poke_);
}

}  // namespace berth
