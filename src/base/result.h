// What can go wrong, as a closed set that callers branch on, and the message for the user.
//
// A function that can fail returns Result<T>. The message is one line for a person: what, why, and
// what to do. The kind decides the exit code (and, in the binding, the Python exception): one
// table, here, so that the two never disagree.
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

// The value of a Result, or a return from the enclosing function with its error:
//
//   const Record record = TRY(parse_record(path));
//   TRY(transaction.write_lease(record));  // Result<void>
//
// The enclosing function must return a Result.
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

// The exit codes of the command line (sysexits.h has the same numbers).
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
