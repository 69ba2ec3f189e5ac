// The hosts of a shared harbour: what each has told of its GPUs, and what is leased there.
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

// Tells the others of this host, if there are others: at most once a minute in a process.
void publish_host_info(Harbour& harbour, const HostView& view,
                       const std::optional<std::string>& driver);

struct HostState {
  std::string name;
  std::optional<std::chrono::milliseconds> age;  // of the card
  Result<HostInfo> info;
  HarbourContents contents{};
  // For who asks as a client: was it told to end, and how long is nobody granted anything there?
  bool ended = false;
  std::chrono::milliseconds recovery_time_left{};
};

// Every host that has told of itself, by name. Asks no driver, and no other host.
Result<std::vector<HostState>> read_hosts(const RedisUrl& url);

// The same host again, as of now, but with the card that it has. `client` and `directory_id` as for
// RedisHostStore::read_snapshot().
Result<void> refresh_host(HostState& host, const RedisUrl& url, const std::string& client,
                          const std::string& directory_id);

// With the processes that were seen there, as far as their leases have not ended since.
HostView build_host_view(const HostState& host);
Status build_status(const HostState& host);

// This host, if it has a driver to ask, and all others: by name.
Result<std::vector<Status>> observe_all(Probe* probe,
                                        const HarbourLocation& where = harbour_location());

}  // namespace berth
