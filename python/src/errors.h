// Errors become Python's exceptions here, by the one table of kinds (base/result.h).
#pragma once

#include <utility>

#include "base/result.h"

namespace berth::python {

// Raises the exception of the error's kind, with its message made fit for a terminal: Python prints
// it there. Needs the interpreter.
[[noreturn]] void raise(const Error& error);

template <class T>
T unless_error(Result<T> result) {
  if (!result) raise(result.error());
  return *std::move(result);
}

}  // namespace berth::python
