// What doctor asks the server of a harbour of several hosts.
#pragma once

#include "doctor/checks.h"
#include "status/status.h"

namespace berth {

// Fills `contents` with what the server has of this host, if it can be had. `local_contents` is
// what lies in this host's directory.
ServerFacts collect_server_facts(const HarbourLocation& where,
                                 const HarbourContents& local_contents, HarbourContents& contents);

}  // namespace berth
