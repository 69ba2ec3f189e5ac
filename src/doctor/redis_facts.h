// Facts about the Redis server of a harbour of several hosts.
#pragma once

#include "doctor/checks.h"
#include "status/status.h"

namespace berth {

// Queries the server. Sets `contents` to what the server stores of this host, unless it cannot be
// read (ServerFacts::error says why). `local_contents` is the contents of this host's directory.
ServerFacts collect_server_facts(const HarbourLocation& where,
                                 const HarbourContents& local_contents, HarbourContents& contents);

}  // namespace berth
