// The flags of a request; the same for every command that takes one.
#pragma once

#include <cstdint>
#include <memory>

#include "cli/flags.h"
#include "lease/request_options.h"

namespace berth {

// Whether the command has flags that limit the wait (--timeout, --no-wait).
enum class WaitLimits : std::uint8_t { offered, none };

// Declares the flags on `command`. The result is filled in by parsing, and is complete after it.
std::shared_ptr<RequestOptions> add_request_flags(Flags& command,
                                                  WaitLimits limits = WaitLimits::offered);

}  // namespace berth
