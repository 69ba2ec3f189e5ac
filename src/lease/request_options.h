// A request as users write it: by flags, the same in every command, or by Python's keywords.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lease/acquire.h"
#include "schedule/request.h"

namespace berth {

struct RequestOptions {
  Request request;  // without `uuids`: what --gpu means, only the driver knows (select_gpus)
  std::optional<unsigned> count;  // as given; request.count follows from it and from --gpu
  std::string gpus;               // --gpu as written, well-formed; empty if it was not given
  bool auto_memory = false;       // --mem auto: request.memory follows from what was learned
  std::string job;                // --job; empty: the type is derived
  std::string label;  // UTF-8; may hold control characters, so printable() before it is shown
  bool no_wait = false;
  std::optional<std::chrono::nanoseconds> timeout;  // zero means what no_wait means
  std::vector<std::string> flags;  // the flags of the request as they were given: "--mem=8GiB"
};

// Reads the text of a value; the error says what is wrong with it, to follow the flag's name.
using RequestValueReader = std::function<Result<void>(std::string_view text)>;
using RequestValueDeclarer = std::function<void(const char* names, const char* type,
                                                const char* help, RequestValueReader read)>;

// Calls `declare` for each value of a request. What is read goes into `options`.
void declare_request_values(const std::shared_ptr<RequestOptions>& options,
                            const RequestValueDeclarer& declare);

// Completes the request once all values are read. Refuses values that contradict each other.
Result<void> validate_request(RequestOptions& options, ArgumentStyle style);

// Reads a request from Python's keywords (see argument_name()), each with its value as text.
Result<RequestOptions> parse_request_keywords(const std::map<std::string, std::string>& values,
                                              bool no_wait);

// Words that everybody may read: UTF-8, 256 bytes at most. ErrorKind::usage says what is wrong.
Result<std::string> parse_public_text(std::string_view text);

// A whole number from `low` to `high`; ErrorKind::usage says what is wrong.
Result<void> parse_bounded_number(std::string_view text, unsigned low, unsigned high,
                                  unsigned& target);

// What to ask for, once the flags are parsed; who asks is still to be filled in.
AcquireRequest make_acquire_request(const RequestOptions& options);

}  // namespace berth
