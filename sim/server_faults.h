// Reads the faults of a simulated server from its description.
#pragma once

#include "sim/json_fields.h"
#include "sim/server.h"

namespace berth::sim {

// Reads "after" and "until".
Window read_window(Fields& fields);

// Reads "gpu", the number of a card of `server`; nullopt if it is absent or wrong.
std::optional<std::size_t> read_card_index(Fields& fields, const Server& server);

// Reads one entry of "faults"; `where` is its name in messages.
Fault read_fault(const Json& json, const std::string& where, FirstProblem& problem,
                 const Server& server);

}  // namespace berth::sim
