// Asks a Redis Sentinel for the address of the current master.
#pragma once

#include <optional>

#include "base/result.h"
#include "cluster/redis/reply.h"
#include "cluster/redis/url.h"

namespace berth {

// The address of the master that the URL names, as `sentinel`, one of the URL's addresses, has it.
// Errors name the Sentinel. ErrorKind::io: it does not know the master, rejects the login, or is
// not a Sentinel.
Result<RedisUrl::Address> query_master_address(const RedisUrl& url,
                                               const RedisUrl::Address& sentinel);

// The reply to SENTINEL get-master-addr-by-name. nullopt unless it is a list of a host and a
// decimal port from 1 to 65535, both as text.
std::optional<RedisUrl::Address> parse_master_address(const Reply& reply);

}  // namespace berth
