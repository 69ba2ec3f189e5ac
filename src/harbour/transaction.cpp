// What every transaction can do; see transaction.h.
#include "harbour/transaction.h"

#include "base/pid_namespace.h"
#include "base/process.h"
#include "harbour/bell.h"

namespace berth {
namespace {

// Who was rung and has not woken for so long is stopped.
constexpr std::chrono::seconds kUnheard(1);
// So is, for the others, one that the kernel calls awake: frozen, or stuck at a terminal that does
// not take its output (Ctrl-S), or waiting on behalf of the process that its record names. Longer,
// since it may just be slow on a busy host. So is one that is on another host.
constexpr std::chrono::seconds kUnheardThoughAwake(5);

}  // namespace

bool is_stopped(const Client& client) {
  if (!client.bell) return client.unheard && *client.unheard >= kUnheardThoughAwake;
  auto limit = kUnheard;
  if (client.record.pid_namespace == pid_namespace()) {
    // Its number may be another's by now; whose it is, the kernel says.
    const auto process = read_process_stat(client.record.pid);
    if (process && process_owner(client.record.pid) == client.record.uid) {
      if (process->stopped) return true;
      limit = kUnheardThoughAwake;
    }
  }
  const auto unheard = client.unheard ? client.unheard : unheard_for(client.bell.get());
  return unheard && *unheard >= limit;
}

Result<void> Transaction::ring_front() {
  for (const TicketName& name : queue()) {
    const auto client = ticket(name);
    if (!client) return tl::make_unexpected(client.error());
    if (!*client) continue;
    ring(**client);
    if (!is_stopped(**client)) break;
  }
  return {};
}

}  // namespace berth
