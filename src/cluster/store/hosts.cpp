// Looking at other hosts; see hosts.h.
#include "cluster/store/hosts.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "cluster/store/redis_store.h"
#include "devices/driver.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kPublishAgain(1);

// Seen from elsewhere, a client lives as long as it is heard of.
std::optional<Client> living(const StoreEntry& entry) {
  if (entry.left.count() <= 0) return std::nullopt;
  auto record = read_shared_record(entry.record);
  if (!record || record->id != entry.id) return std::nullopt;
  record->sampled = false;  // whether it is used, only its own host can tell
  return Client{std::move(*record), {}, entry.unheard, entry.left};
}

HarbourContents ledger_of(const StoreSnapshot& sight) {
  HarbourContents ledger;
  for (const StoreEntry& entry : sight.leases) {
    if (auto lease = living(entry)) ledger.leases.push_back(std::move(lease->record));
  }
  std::vector<TicketName> queue = sight.queue;
  std::sort(queue.begin(), queue.end());
  for (const TicketName& name : queue) {
    const auto entry = std::find_if(sight.tickets.begin(), sight.tickets.end(),
                                    [&](const StoreEntry& one) { return one.id == name.id; });
    auto ticket = entry == sight.tickets.end() ? std::nullopt : living(*entry);
    if (!ticket) continue;
    ledger.stopped.push_back(is_unresponsive(*ticket));
    ledger.tickets.push_back(std::move(ticket->record));
    ledger.ticket_names.push_back(name);
  }
  for (const auto& [uuid, text] : sight.drains) {
    auto drain = read_drain(text);
    // Unknown is not free: somebody wanted it out of service.
    ledger.drains.push_back(drain ? std::move(*drain)
                                  : Drain{uuid, 0, "its drain cannot be read", {}});
  }
  return ledger;
}

}  // namespace

void publish(Harbour& harbour, const HostView& scene, const std::optional<std::string>& driver) {
  static std::atomic<Clock::rep> next{0};
  RedisHostStore* part = harbour.part();
  const auto now = Clock::now();
  if (part == nullptr || now.time_since_epoch().count() < next) return;
  next = (now + kPublishAgain).time_since_epoch().count();
  part->publish(write_card(scene, driver, driver_is_simulated()));
}

Result<std::vector<HostState>> look_at_hosts(const RedisUrl& url) {
  auto cards = RedisHostStore(url, "").cards();
  if (!cards) return tl::make_unexpected(cards.error());
  std::vector<HostState> hosts;
  for (StoredHostInfo& card : *cards) {
    hosts.push_back({std::move(card.host), card.age, read_card(card.card)});
    // Each is a step of its own: what they say of one another need not be of one moment.
    if (auto looked = look_again(hosts.back(), url, "", ""); !looked) {
      return tl::make_unexpected(looked.error());
    }
  }
  return hosts;
}

Result<void> look_again(HostState& host, const RedisUrl& url, const std::string& client,
                        const std::string& directory_id) {
  const auto sight = RedisHostStore(url, host.name).look(client, directory_id);
  if (!sight) return tl::make_unexpected(sight.error());
  host.ledger = ledger_of(*sight);
  host.ended = sight->ended;
  host.settles = sight->settles;
  return {};
}

HostView scene_of(const HostState& host) {
  Snapshot snapshot;
  if (host.card) {
    for (const GpuWithLeases& placed : host.card->gpus) snapshot.gpus.push_back(placed.gpu);
  }
  HostView scene = attribute_processes(snapshot, host.ledger.leases, host.ledger.drains);
  for (std::size_t i = 0; i < scene.gpus.size(); ++i) {
    const GpuWithLeases& told = host.card->gpus[i];
    scene.gpus[i].unexplained = told.unexplained;
    for (const AttributedProcess& process : told.processes) {
      const auto& leases = scene.gpus[i].leases;
      const bool counts = process.lease.empty() ||
                          std::find(leases.begin(), leases.end(), process.lease) != leases.end();
      if (counts) scene.gpus[i].processes.push_back(process);
    }
  }
  return scene;
}

Status status_of(const HostState& host) {
  Status status = make_status(host.name, host.ledger, scene_of(host), {});
  status.elsewhere = true;
  if (host.age) status.age = std::chrono::floor<std::chrono::seconds>(*host.age);
  if (!host.card) {
    status.problem = host.card.error().message;
  } else {
    status.driver = host.card->driver;
    status.simulated = host.card->simulated;
  }
  return status;
}

Result<std::vector<Status>> observe_all(Probe* probe, const HarbourLocation& where) {
  if (where.wrong) return tl::make_unexpected(*where.wrong);
  std::optional<Status> here;
  if (probe != nullptr) {
    auto observed = observe(*probe, driver_is_simulated(), where);
    const bool no_driver = !observed && observed.error().kind == ErrorKind::no_driver;
    if (!observed && !no_driver) return tl::make_unexpected(observed.error());
    if (observed) here = std::move(*observed);
  }
  std::vector<Status> all;
  if (where.url) {
    auto hosts = look_at_hosts(*where.url);
    if (!hosts) return tl::make_unexpected(hosts.error());
    for (const HostState& host : *hosts) {
      if (!here || host.name != here->host) all.push_back(status_of(host));
    }
  }
  if (here) {
    const auto place = std::find_if(all.begin(), all.end(),
                                    [&](const Status& one) { return one.host > here->host; });
    all.insert(place, std::move(*here));
  }
  return all;
}

}  // namespace berth
