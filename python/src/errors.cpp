// Raises errors as Python exceptions; see errors.h.
#include "python/src/errors.h"

#include <nanobind/nanobind.h>

#include "base/text.h"

namespace nb = nanobind;

namespace berth::python {
namespace {

const char* exception_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return "UsageError";
    case ErrorKind::no_driver:
      return "NoDriver";
    case ErrorKind::impossible:
      return "Impossible";
    case ErrorKind::io:
    case ErrorKind::unavailable:
      return "HarbourError";
    case ErrorKind::not_granted:
      return "NotGranted";
    case ErrorKind::permission:
      return "NotYours";
  }
  return "Error";
}

}  // namespace

void raise_error(const Error& error) {
  const nb::object type = nb::module_::import_("berth._errors").attr(exception_name(error.kind));
  PyErr_SetString(type.ptr(), printable(error.message).c_str());
  throw nb::python_error();
}

}  // namespace berth::python
