// Reads a request for GPUs from the flags of the command line, the same in every command, or from
// the keyword arguments of Python.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/configuration.h"
#include "lease/acquire.h"
#include "schedule/request.h"

namespace berth {

struct RequestOptions {
  Request request;                // without `uuids`: select_gpus() needs the driver for them
  std::optional<unsigned> count;  // as given; request.count follows from it and from --gpu
  std::string gpus;               // --gpu as written, well-formed; empty if it was not given
  bool auto_memory = false;       // --mem auto: request.memory follows from the learned profile
  std::string job;                // --job; empty: the job type is derived from the command
  std::string label;  // UTF-8; may have control characters, so printable() before it is shown
  bool no_wait = false;
  std::optional<std::chrono::nanoseconds> timeout;  // zero means what no_wait means
  std::vector<std::string> flags;  // the flags of the request as they were given: "--mem=8GiB"
};

// Parses the text of a value and stores it. The message of an error follows the name of the flag.
using RequestValueReader = std::function<Result<void>(std::string_view text)>;
using RequestValueDeclarer = std::function<void(const char* names, const char* type,
                                                const char* help, RequestValueReader read)>;

// Calls `declare` for each value of a request. The readers store the values in `options`, and keep
// it alive.
void declare_request_values(const std::shared_ptr<RequestOptions>& options,
                            const RequestValueDeclarer& declare);

// Completes the request once all values are read. Refuses values that contradict each other.
Result<void> validate_request(RequestOptions& options, ArgumentStyle style);

// Reads a request from Python's keywords (see argument_name()), each with its value as text.
Result<RequestOptions> parse_request_keywords(const std::map<std::string, std::string>& values,
                                              bool no_wait);

// Checks the values of Configuration::request_defaults. An error names the file and the line.
Result<void> check_request_defaults(const Configuration& configuration);
// The error for one of these values. `problem` says what is wrong with it.
Error request_default_error(std::string_view name, const Setting& setting,
                            std::string_view problem);

// The value that a request has for one of kRequestDefaults if no file sets it; nullopt: none.
std::optional<std::string> builtin_request_default(std::string_view name);

// What a size in decimal units is, since most users who write 8GB mean 8 GiB: "--mem 8GB is 7.5
// GiB; if you mean 8 GiB, write 8GiB". `argument` is the flag or keyword of the size. nullopt: the
// size has another unit.
std::optional<std::string> explain_decimal_size(std::string_view argument, std::string_view size);

// A text that all users can read: UTF-8, at most 256 bytes. ErrorKind::usage if it is not.
Result<std::string> parse_public_text(std::string_view text);

// Parses a whole number from `low` to `high`; ErrorKind::usage if it is not. May change `target`
// even then.
Result<void> parse_bounded_number(std::string_view text, unsigned low, unsigned high,
                                  unsigned& target);

// The request for acquire(), with the variables of this process's environment. The caller sets the
// command and the holder.
AcquireRequest make_acquire_request(const RequestOptions& options);

}  // namespace berth
