// Turns errors (base/result.h) into Python exceptions: one exception class for each kind.
#pragma once

#include <utility>

#include "base/result.h"

namespace berth::python {

// Raises the exception of the error's kind. The message is escaped, since Python prints it to the
// terminal. Needs the GIL.
[[noreturn]] void raise_error(const Error& error);

// The value of `result`, or raises its error.
template <class T>
T value_or_raise(Result<T> result) {
  if (!result) raise_error(result.error());
  return *std::move(result);
}

}  // namespace berth::python
