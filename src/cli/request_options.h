// The flags by which a request is written; the same for every command that takes one.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lease/acquire.h"
#include "cli/flags.h"
#include "schedule/request.h"

namespace berth {

struct RequestOptions {
  Request request;  // without `uuids`: what --gpu means, only the driver knows (select_gpus)
  std::optional<unsigned> count;  // as given; request.count follows from it and from --gpu
  std::string gpus;               // --gpu as written, well-formed; empty if it was not given
  bool learned = false;           // --mem auto: request.memory follows from what was learned
  std::string job;                // --job; empty: the type is derived
  std::string label;  // UTF-8; may hold control characters, so printable() before it is shown
  bool no_wait = false;
  std::optional<std::chrono::nanoseconds> timeout;  // zero means what no_wait means
  std::vector<std::string> words;  // the flags of the request as they were given: "--mem=8GiB"
};

// Whether there are flags that say how long to wait (--timeout, --no-wait).
enum class WaitLimits : std::uint8_t { offered, none };

// Declares the flags on `command`, and that those that contradict each other are refused. What is
// returned is filled in by parsing, and complete once that is done.
std::shared_ptr<RequestOptions> add_request_options(Flags& command,
                                                    WaitLimits limits = WaitLimits::offered);

// The same from Python's keywords (see spelled()), each with its value as text.
Result<RequestOptions> read_request(const std::map<std::string, std::string>& values, bool no_wait);

// Words that everybody may read: UTF-8, 256 bytes at most. ErrorKind::usage says what is wrong.
Result<std::string> parse_text(std::string_view text);

// A whole number from `low` to `high`; ErrorKind::usage says what is wrong.
Result<void> take_number(std::string_view text, unsigned low, unsigned high, unsigned& target);

// What to ask for, once the flags are parsed; who asks is still to be filled in.
Ask make_ask(const RequestOptions& options);

}  // namespace berth
