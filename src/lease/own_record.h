// Writing of one's own ticket or lease where others may have planted a file of its name.
#pragma once

#include <functional>

#include "harbour/harbour.h"

namespace berth {

// Calls `write`, which writes `record`; under a new id and with a new bell where somebody planted a
// file of that name, which only he can remove. `ticket`, or nothing, is removed with the old bell.
Result<void> write_own_record(Harbour& harbour, Transaction& transaction, Record& record,
                              PrivateFd& bell, std::optional<TicketName>& ticket,
                              const std::function<Result<void>()>& write);

}  // namespace berth
