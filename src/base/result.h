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
  harbour,      // the harbour cannot be used
  away,         // the harbour's server does not answer now, and may later
  not_granted,  // not granted in time
  not_yours,    // somebody else's ticket or lease
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

// The exit codes of the command line (sysexits.h has the same numbers).
constexpr int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return 64;
    case ErrorKind::no_driver:
    case ErrorKind::impossible:
      return 69;
    case ErrorKind::harbour:
    case ErrorKind::away:
      return 74;
    case ErrorKind::not_granted:
      return 75;
    case ErrorKind::not_yours:
      return 77;
  }
  return 70;
}

}  // namespace berth
