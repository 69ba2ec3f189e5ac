// The hosts of a shared harbour: the GPUs that each has published, and its current leases.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/redis/url.h"
#include "cluster/store/host_info.h"
#include "harbour/harbour.h"
#include "status/host_view.h"
#include "status/status.h"

namespace berth {

// Publishes this host's GPUs to the other hosts, at most once a minute in a process. Does nothing
// if the harbour is not shared.
void publish_host_info(Harbour& harbour, const HostView& view,
                       const std::optional<std::string>& driver);

struct HostState {
  std::string name;
  std::optional<std::chrono::milliseconds> age;  // of `info`; nullopt: unknown
  Result<HostInfo> info;
  HarbourContents contents{};
  // Set by refresh_host() for a client: whether its ticket was cancelled, and for how long no GPU
  // is granted there.
  bool ended = false;
  std::chrono::milliseconds recovery_time_left{};
};

// Every host that has published its GPUs, sorted by name. Reads only from Redis.
Result<std::vector<HostState>> read_hosts(const RedisUrl& url);

// Reads the host's leases, tickets and drains again, but not its `info`. For `client` and
// `directory_id` see RedisHostStore::read_snapshot().
Result<void> refresh_host(HostState& host, const RedisUrl& url, const std::string& client,
                          const std::string& directory_id);

// The host's GPUs with its current leases and drains, and with the processes that it has published,
// except those whose lease has ended since.
HostView build_host_view(const HostState& host);
Status build_status(const HostState& host, TimePoint now);

// The status of this host, if `probe` is not null and there is a driver, and of all other hosts of
// the harbour, sorted by name.
Result<std::vector<Status>> observe_all(Probe* probe,
                                        const HarbourLocation& where = harbour_location());

}  // namespace berth
