// Reading of what goes wrong on a simulated server, and when.
#pragma once

#include "sim/json_fields.h"
#include "sim/server.h"

namespace berth::sim {

// "after" and "until".
Window read_window(Fields& fields);

// "gpu": the number of a card that `server` has; nothing if it is absent.
std::optional<std::size_t> read_card_index(Fields& fields, const Server& server);

// One entry of "faults"; `where` names it in messages.
Fault read_fault(const Json& json, const std::string& where, FirstProblem& problem,
                 const Server& server);

}  // namespace berth::sim
