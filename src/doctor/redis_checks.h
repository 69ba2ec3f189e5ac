// What doctor asks the server of a harbour of several hosts.
#pragma once

#include "doctor/checks.h"
#include "status/status.h"

namespace berth {

// Fills `ledger` with what the server has of this host, if it can be had. `here` is what lies in
// this host's directory.
ServerFacts look_at_server(const HarbourLocation& where, const HarbourContents& here, HarbourContents& ledger);

}  // namespace berth
