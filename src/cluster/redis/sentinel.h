// Asks a Redis Sentinel for the address of the current master.
#pragma once

#include "base/result.h"
#include "cluster/redis/url.h"

namespace berth {

// The address of the master that the URL names, as `sentinel`, one of the URL's addresses, has it.
// Errors name the Sentinel. ErrorKind::io: it does not know the master, rejects the login, or is
// not a Sentinel.
Result<RedisUrl::Address> query_master_address(const RedisUrl& url,
                                               const RedisUrl::Address& sentinel);

}  // namespace berth
