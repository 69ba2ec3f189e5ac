// Publishing this host's state and reading that of others; see hosts.h.
#include "cluster/store/hosts.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "cluster/store/redis_store.h"
#include "devices/driver.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kPublishInterval(1);

// Other hosts cannot see a client's bell: to them it is alive until its time to live is over.
std::optional<Client> read_live_client(const StoreEntry& entry) {
  if (entry.time_left.count() <= 0) return std::nullopt;
  auto record = parse_shared_record(entry.record);
  if (!record || record->id != entry.id) return std::nullopt;
  record->sampled = false;  // only its own host knows whether its GPUs are used
  return Client{std::move(*record), {}, entry.unanswered, entry.time_left};
}

HarbourContents build_contents(const StoreSnapshot& snapshot) {
  HarbourContents contents;
  for (const StoreEntry& entry : snapshot.leases) {
    if (auto lease = read_live_client(entry)) contents.leases.push_back(std::move(lease->record));
  }
  for (const TicketName& name : snapshot.queue) {
    const auto entry = std::find_if(snapshot.tickets.begin(), snapshot.tickets.end(),
                                    [&](const StoreEntry& one) { return one.id == name.id; });
    auto ticket = entry == snapshot.tickets.end() ? std::nullopt : read_live_client(*entry);
    if (!ticket) continue;
    contents.stopped.push_back(is_unresponsive(*ticket));
    contents.tickets.push_back(std::move(ticket->record));
    contents.ticket_names.push_back(name);
  }
  for (const auto& [uuid, text] : snapshot.drains) {
    auto drain = parse_shared_drain(uuid, text);
    contents.drains.push_back(drain ? std::move(*drain) : unreadable_drain(uuid));
  }
  return contents;
}

}  // namespace

void publish_host_info(Harbour& harbour, const HostView& view,
                       const std::optional<std::string>& driver) {
  static std::atomic<Clock::rep> next{0};
  RedisHostStore* store = harbour.store();
  const auto now = Clock::now();
  if (store == nullptr || now.time_since_epoch().count() < next) return;
  next = (now + kPublishInterval).time_since_epoch().count();
  store->publish_info(format_host_info(view, driver, is_driver_simulated()));
}

Result<std::vector<HostState>> read_hosts(const RedisUrl& url) {
  auto infos = TRY(RedisHostStore(url, "").read_host_infos());
  std::vector<HostState> hosts;
  for (StoredHostInfo& stored : infos) {
    hosts.push_back({std::move(stored.host), stored.age, parse_host_info(stored.info_json)});
    // Each host is read in a step of its own: the states of two hosts need not be of one moment.
    TRY(refresh_host(hosts.back(), url, "", ""));
  }
  return hosts;
}

Result<void> refresh_host(HostState& host, const RedisUrl& url, const std::string& client,
                          const std::string& directory_id) {
  const StoreSnapshot snapshot =
      TRY(RedisHostStore(url, host.name).read_snapshot(client, directory_id));
  host.contents = build_contents(snapshot);
  host.ended = snapshot.ended;
  host.recovery_time_left = snapshot.recovery_time_left;
  return {};
}

HostView build_host_view(const HostState& host) {
  Snapshot snapshot;
  if (host.info) {
    for (const GpuWithLeases& gpu_entry : host.info->gpus) snapshot.gpus.push_back(gpu_entry.gpu);
  }
  HostView view = make_host_view(snapshot, host.contents.leases, host.contents.drains);
  for (std::size_t i = 0; i < view.gpus.size(); ++i) {
    const GpuWithLeases& published = host.info->gpus[i];
    view.gpus[i].unexplained = published.unexplained;
    for (const AttributedProcess& process : published.processes) {
      const auto& leases = view.gpus[i].leases;
      const bool counts = process.lease.empty() ||
                          std::find(leases.begin(), leases.end(), process.lease) != leases.end();
      if (counts) view.gpus[i].processes.push_back(process);
    }
  }
  return view;
}

Status build_status(const HostState& host, TimePoint now) {
  Status status = make_status(host.name, host.contents, build_host_view(host), {}, now);
  status.is_remote = true;
  if (host.age) status.age = std::chrono::floor<std::chrono::seconds>(*host.age);
  if (!host.info) {
    status.problem = host.info.error().message;
  } else {
    status.driver = host.info->driver;
    status.simulated = host.info->simulated;
  }
  return status;
}

Result<std::vector<Status>> observe_all(Probe* probe, const HarbourLocation& where) {
  if (where.configuration_error) return tl::make_unexpected(*where.configuration_error);
  std::optional<Status> here;
  if (probe != nullptr) {
    auto observed = observe_host(*probe, is_driver_simulated(), where);
    const bool no_driver = !observed && observed.error().kind == ErrorKind::no_driver;
    if (!observed && !no_driver) return tl::make_unexpected(observed.error());
    if (observed) here = std::move(*observed);
  }
  std::vector<Status> all;
  if (where.url) {
    const auto hosts = TRY(read_hosts(*where.url));
    for (const HostState& host : hosts) {
      if (!here || host.name != here->host)
        all.push_back(build_status(host, here ? here->time : std::chrono::system_clock::now()));
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
