// Asking Sentinel which server is the master now.
#pragma once

#include "base/result.h"
#include "cluster/redis/url.h"

namespace berth {

// Asks one of the URL's sentinels. Errors name it; ErrorKind::io: it knows no such master, or
// lets nobody in.
Result<RedisUrl::Address> query_master_address(const RedisUrl& url,
                                               const RedisUrl::Address& sentinel);

}  // namespace berth
