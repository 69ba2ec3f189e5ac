// The parts of a transaction that all kinds of harbour share; see transaction.h.
#include "harbour/transaction.h"

#include "base/process.h"
#include "harbour/bell.h"

namespace berth {
namespace {

// A client on a busy host may be slow to read its bell. A ring of another host takes longer.
constexpr std::chrono::seconds kUnresponsiveAfter(3);
constexpr std::chrono::seconds kRemoteUnresponsiveAfter(5);
// How many tickets of one user visit_front() visits: one more than begin_to_ring_front() checks,
// so that ring_front() still rings a ticket behind as many stopped ones.
constexpr std::size_t kMaxVisitsPerUser = 17;

// The PID may belong to another process by now, so its owner must be the client's owner.
bool is_stopped_process(pid_t pid, uid_t owner) {
  const auto process = read_process_stat(pid);
  return process && process->stopped && read_process_owner(pid) == owner;
}

}  // namespace

bool is_unresponsive(const Client& client) {
  if (!client.bell) return client.unanswered && *client.unanswered >= kRemoteUnresponsiveAfter;
  const auto unanswered = client.unanswered ? client.unanswered : unanswered_for(client.bell.get());
  return unanswered && *unanswered >= kUnresponsiveAfter;
}

bool StoppedProcesses::read(const std::vector<Record>& clients) {
  bool found_new = false;
  for (const Record& client : clients) {
    if (client.pid_namespace != pid_namespace()) continue;
    if (is_stopped_process(client.pid, client.uid)) {
      found_new = owners_.insert_or_assign(client.pid, client.uid).second || found_new;
    } else {
      owners_.erase(client.pid);
    }
  }
  return found_new;
}

void StoppedProcesses::refresh() {
  std::erase_if(owners_,
                [](const auto& one) { return !is_stopped_process(one.first, one.second); });
}

bool StoppedProcesses::contains(const Record& client) const {
  const auto found = owners_.find(client.pid);
  return client.pid_namespace == pid_namespace() && found != owners_.end() &&
         found->second == client.uid;
}

bool Transaction::is_stopped(const Client& client) const {
  return (check_unread_bells_ && is_unresponsive(client)) || stopped_.contains(client.record);
}

Result<void> Transaction::visit_front(const std::function<bool(const Client&)>& visit) {
  struct UserFront {
    std::size_t visits = 0;
    bool done = false;
  };
  std::map<std::optional<uid_t>, UserFront> fronts;
  for (const TicketName& name : queue()) {
    UserFront& front = fronts[name.owner];
    if (front.done) continue;
    const std::optional<Client> client = TRY(read_ticket(name));
    if (!client) continue;
    // Tickets of unknown owners may belong to different users, so they have no limit.
    front.done = visit(*client) || (++front.visits >= kMaxVisitsPerUser && name.owner);
  }
  return {};
}

Result<void> Transaction::ring_front() {
  return visit_front([this](const Client& client) {
    ring(client);
    return !is_stopped(client);
  });
}

}  // namespace berth
