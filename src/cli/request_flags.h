// The flags of a GPU request, which several commands share. lease/request_options.h parses their
// values, for the Python package as well.
#pragma once

#include <cstdint>
#include <memory>

#include "cli/flags.h"
#include "lease/request_options.h"
#include "run/notify.h"
#include "run/start_conditions.h"

namespace berth {

// Whether the command has flags that limit the wait (--timeout, --no-wait).
enum class WaitLimits : std::uint8_t { offered, none };

// Declares the flags on `command`, which must outlive the parsing. Parsing fills in the result:
// with the values of the flags, and with the defaults of the configuration for flags that are not
// given.
std::shared_ptr<RequestOptions> add_request_flags(Flags& command,
                                                  WaitLimits limits = WaitLimits::offered);

// Declares --after, --after-any and --begin. `owner` keeps `conditions` alive.
void add_start_flags(Flags& command, const std::shared_ptr<void>& owner,
                     StartConditions& conditions);

// Declares --notify. `owner` keeps `options` alive.
void add_notify_flag(Flags& command, const std::shared_ptr<void>& owner, NotifyOptions& options);

}  // namespace berth
