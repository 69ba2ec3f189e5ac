// Errors become Python's exceptions here, by the one table of kinds (base/result.h).
#pragma once

#include <utility>

#include "base/result.h"

namespace berth::python {

// Raises the exception of the error's kind, with its message made fit for a terminal: Python prints
// it there. Needs the interpreter.
[[noreturn]] void raise_error(const Error& error);

template <class T>
T value_or_raise(Result<T> result) {
  if (!result) raise_error(result.error());
  return *std::move(result);
}

}  // namespace berth::python
