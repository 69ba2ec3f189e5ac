// The type of errors, the result of functions that can fail, and the macro that propagates errors.
//
// A function that can fail returns Result<T>. The message is one line for the user: what is wrong,
// why, and what to do. Callers branch on the kind, which also decides the exit code and, in the
// Python binding, the exception.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace berth {

enum class ErrorKind {
  usage,        // the user's input is wrong: flags, environment, files named by them
  no_driver,    // the driver is missing, refuses, differs from its library, or does not answer
  impossible,   // a request that this host can never meet
  io,           // a file, directory, socket or server cannot be used
  unavailable,  // a server does not answer now, and may later
  not_granted,  // not granted in time
  permission,   // only the owner or root may do this
};

struct Error {
  ErrorKind kind;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(ErrorKind kind, std::string message) {
  return tl::make_unexpected(Error{kind, std::move(message)});
}

// Evaluates to the value of a Result, or returns its error from the enclosing function:
//
//   const Record record = TRY(parse_record(text));
//   TRY(transaction.write_lease(record));  // Result<void>
//
// The enclosing function (or lambda, with an explicit return type) must return a Result.
#define TRY(...) BERTH_TRY(BERTH_TRY_NAME(__COUNTER__), __VA_ARGS__)
#define BERTH_TRY_NAME(number) BERTH_TRY_JOIN(try_result_, number)
#define BERTH_TRY_JOIN(a, b) a##b
#define BERTH_TRY(result, ...)                                              \
  (__extension__({                                                          \
    auto result = (__VA_ARGS__);                                            \
    if (!(result)) return ::tl::make_unexpected(std::move(result).error()); \
    ::berth::detail::value_of(std::move(result));                           \
  }))

namespace detail {
template <class T>
T value_of(Result<T>&& result) {
  return std::move(*result);
}
inline void value_of(Result<void>&& /*result*/) {}
}  // namespace detail

// The exit codes of the command line; the numbers are those of sysexits.h.
constexpr int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return 64;
    case ErrorKind::no_driver:
    case ErrorKind::impossible:
      return 69;
    case ErrorKind::io:
    case ErrorKind::unavailable:
      return 74;
    case ErrorKind::not_granted:
      return 75;
    case ErrorKind::permission:
      return 77;
  }
  return 70;
}

}  // namespace berth
