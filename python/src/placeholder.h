// berth's own placeholder (devices/placeholder.h) for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace berth::python {

void define_placeholder(nanobind::module_& module);

}  // namespace berth::python
