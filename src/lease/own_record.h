// Writes the client's own ticket or lease, also where another user has taken its file name.
//
// Any user can create a file of any name in the harbour, and only its owner can remove it. A client
// whose file name is taken continues under a new id.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/result.h"
#include "harbour/harbour.h"

namespace berth {

class DecisionContext;

// Calls `write`, which must write `record` in `transaction`. If a file of that name exists, removes
// the files of the old id, the bell and `ticket` among them, gives `record` and `bell` a new id,
// and calls `write` again, a limited number of times.
Result<void> write_own_record(Harbour& harbour, Transaction& transaction, Record& record,
                              PrivateFd& bell, std::optional<TicketName>& ticket,
                              const std::function<Result<void>()>& write);

// Writes the ticket of the deciding client with this number (see Transaction::write_ticket()),
// and sets PendingClient::ticket.
Result<void> write_own_ticket(DecisionContext& context, std::uint64_t file_number);

// Writes the bell and the ticket of the deciding client again if they, or the whole directory, were
// deleted: a lease without its bell would not count. Also writes the ticket if
// PendingClient::request_changed; if it asks for more now, as a new one (Decision::lost_place).
Result<void> restore_own_files(DecisionContext& context);

}  // namespace berth
